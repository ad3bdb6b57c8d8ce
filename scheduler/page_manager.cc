// Refcounts, a free list and the chains. A page is shared only when it is full,
// so nobody ever has to ask "may I write here": the page a sequence appends to
// is its own, because Fork copies a partial one at once instead of on first
// write.
#include "scheduler/page_manager.h"

#include <algorithm>
#include <string>

namespace millrace::scheduler {
using models::kNoPage;
using models::kPageTokens;
using models::PageCopy;
using models::PageId;

namespace {

// The step of splitmix64 (Steele et al. 2014): each id stirs all bits.
uint64_t Stir(uint64_t hash, uint64_t value) {
  uint64_t z = (hash ^ value) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string NameOf(size_t page) { return "page " + std::to_string(page); }

}  // namespace

PageManager::PageManager(int32_t num_pages, uint64_t hash_mask,
                         bool heads_may_go)
    : hash_mask_(hash_mask), heads_may_go_(heads_may_go), pages_(num_pages) {
  free_.reserve(num_pages);
  for (int32_t page = num_pages - 1; page >= 0; --page) {
    free_.push_back(PageId{page});
  }
}

bool PageManager::Allocate(int32_t n, std::vector<PageId>& pages) {
  if (n > available()) return false;
  for (int32_t i = 0; i < n; ++i) {
    if (free_.empty()) {
      const PageId oldest = cached_.begin()->second;
      cached_.erase(cached_.begin());
      Unregister(oldest);
      free_.push_back(oldest);
    }
    const PageId page = free_.back();
    free_.pop_back();
    CHECK(At(page).refs == 0 && !At(page).registered,
          "a page on the free list has an owner or contents");
    At(page).refs = 1;
    first_unused_ =
        std::max(first_unused_, static_cast<int32_t>(Index(page)) + 1);
    pages.push_back(page);
  }
  used_ += n;
  return true;
}

void PageManager::Release(std::vector<PageId>& pages) {
  // Back to front: the next owner gets free ones in the same order, and of
  // cached ones the tail is the first to be evicted.
  for (auto page = pages.rbegin(); page != pages.rend(); ++page) {
    if (*page != kNoPage) DropReference(*page);
  }
  pages.clear();
}

void PageManager::GiveBack(std::vector<PageId>& pages, int32_t idx) {
  const Page& page = At(pages[idx]);
  CHECK(heads_may_go_ || !page.registered || page.group > 0,
        "sequences keep the pages of a chain");
  DropReference(pages[idx]);
  pages[idx] = kNoPage;
}

std::optional<PageManager::Forked> PageManager::Fork(
    std::span<const PageId> pages, int32_t num_tokens) {
  const int32_t num_full = num_tokens / kPageTokens;
  const bool partial = num_tokens % kPageTokens != 0;
  CHECK(num_full + (partial ? 1 : 0) <= static_cast<int32_t>(pages.size()),
        "a fork covers more tokens than its source has pages for");
  Forked forked;
  forked.pages.reserve(pages.size());
  for (int32_t i = 0; i < num_full; ++i) forked.pages.push_back(pages[i]);
  if (partial) {
    if (!Allocate(1, forked.pages)) return std::nullopt;
    forked.copy = PageCopy{pages[num_full], forked.pages.back()};
  }
  // References last: a failed fork leaves the books as they were.
  for (int32_t i = 0; i < num_full; ++i) {
    if (pages[i] != kNoPage) AddReference(pages[i]);
  }
  return forked;
}

void PageManager::HashPages(std::span<const int32_t> tokens,
                            std::vector<uint64_t>& hashes) const {
  while ((hashes.size() + 1) * kPageTokens <= tokens.size()) {
    uint64_t hash = hashes.empty() ? 0 : hashes.back();
    for (const int32_t id :
         tokens.subspan(hashes.size() * kPageTokens, kPageTokens)) {
      hash = Stir(hash, static_cast<uint32_t>(id));
    }
    hashes.push_back(hash & hash_mask_);
  }
}

PageManager::Found PageManager::Find(std::span<const int32_t> tokens,
                                     std::span<const uint64_t> hashes,
                                     int32_t max_pages) const {
  Found found;
  PageId before = kNoPage;
  for (size_t i = 0; i < hashes.size() && static_cast<int32_t>(i) < max_pages;
       ++i) {
    before = FindPage(hashes[i], before,
                      tokens.subspan(i * kPageTokens, kPageTokens));
    if (before == kNoPage) break;
    found.pages.push_back(before);
    found.num_cached += At(before).refs == 0;
  }
  return found;
}

void PageManager::Share(std::span<const PageId> found) {
  for (const PageId page : found) {
    if (page != kNoPage) AddReference(page);
  }
}

void PageManager::Touch(std::span<const PageId> found) {
  // Back to front, as they were left.
  for (auto id = found.rbegin(); id != found.rend(); ++id) {
    Page& page = At(*id);
    if (page.refs > 0) continue;
    cached_.erase(page.left);
    page.left = moments_++;
    cached_.emplace(page.left, *id);
  }
}

bool PageManager::Register(std::vector<PageId>& pages, int32_t idx,
                           std::span<const int32_t> ids, uint64_t hash) {
  CHECK(static_cast<int32_t>(ids.size()) == kPageTokens,
        "a registered page is full");
  const PageId before = idx > 0 ? pages[idx - 1] : kNoPage;
  CHECK(before == kNoPage || At(before).registered,
        "a chain is registered from its head on");
  const PageId known = FindPage(hash, before, ids);
  if (known != kNoPage) {
    CHECK(known != pages[idx], "a page is registered once");
    AddReference(known);
    DropReference(pages[idx]);
    pages[idx] = known;
    return false;
  }
  Page& page = At(pages[idx]);
  CHECK(page.refs == 1 && !page.registered,
        "a page is registered by the owner who filled it");
  page.registered = true;
  page.before = before;
  page.group = 0;
  Follow(pages[idx]);
  page.hash = hash;
  page.serial = ++num_registered_;
  std::ranges::copy(ids, page.ids.begin());
  registered_.emplace(hash, pages[idx]);
  return true;
}

void PageManager::Attach(PageId chained, int32_t group,
                         std::vector<PageId>& pages, int32_t idx) {
  Page& chain = At(chained);
  CHECK(chain.registered && chain.group == 0 && group > 0,
        "a page is attached to one of a chain");
  PageId& attached = chain.attached[static_cast<size_t>(group - 1)];
  if (attached != kNoPage) {
    CHECK(attached != pages[idx], "a page is attached once");
    AddReference(attached);
    DropReference(pages[idx]);
    pages[idx] = attached;
    return;
  }
  Page& page = At(pages[idx]);
  CHECK(page.refs == 1 && !page.registered,
        "a page is attached by the owner who filled it");
  page.registered = true;
  page.before = chained;
  page.group = group;
  attached = pages[idx];
}

void PageManager::Forget() {
  registered_.clear();
  for (Page& page : pages_) {
    page.registered = false;
    page.group = 0;
    page.attached = NoAttachments();
    page.first_follower = page.sibling = page.sibling_before = kNoPage;
  }
  for (const auto& [left, page] : cached_) free_.push_back(page);
  cached_.clear();
}

PageId PageManager::FindPage(uint64_t hash, PageId before,
                             std::span<const int32_t> ids) const {
  const auto [begin, end] = registered_.equal_range(hash);
  for (auto candidate = begin; candidate != end; ++candidate) {
    const Page& page = At(candidate->second);
    if (page.before == before && std::ranges::equal(page.ids, ids)) {
      return candidate->second;
    }
  }
  return kNoPage;
}

void PageManager::AddReference(PageId id) {
  Page& page = At(id);
  if (page.refs++ > 0) return;
  CHECK(page.registered, "only cached pages come back without Allocate");
  cached_.erase(page.left);
  ++used_;
}

void PageManager::DropReference(PageId id) {
  Page& page = At(id);
  CHECK(page.refs > 0, "a page was released more often than taken");
  if (--page.refs > 0) return;
  --used_;
  if (page.registered) {
    page.left = moments_++;
    cached_.emplace(page.left, id);
  } else {
    free_.push_back(id);
  }
}

// An evicted page has no registered followers, unless pages before it were
// given back (GiveBack): then they are taken out with it, as is what is
// attached.
void PageManager::Unregister(PageId id) {
  std::vector<PageId> doomed = {id};
  for (size_t i = 0; i < doomed.size(); ++i) {
    for (PageId next = At(doomed[i]).first_follower; next != kNoPage;
         next = At(next).sibling) {
      doomed.push_back(next);
    }
    for (const PageId attached : At(doomed[i]).attached) {
      if (attached != kNoPage) doomed.push_back(attached);
    }
  }
  for (auto page = doomed.rbegin(); page != doomed.rend(); ++page) {
    UnregisterOne(*page);
    if (*page == id || At(*page).refs > 0) continue;
    cached_.erase(At(*page).left);
    free_.push_back(*page);
  }
}

void PageManager::UnregisterOne(PageId id) {
  Page& page = At(id);
  if (page.group > 0) {
    At(page.before).attached[static_cast<size_t>(page.group - 1)] = kNoPage;
    page.registered = false;
    page.group = 0;
    return;
  }
  Unfollow(id);
  const auto [begin, end] = registered_.equal_range(page.hash);
  for (auto entry = begin; entry != end; ++entry) {
    if (entry->second != id) continue;
    registered_.erase(entry);
    page.registered = false;
    return;
  }
  CHECK(false, "a cached page can be found");
}

void PageManager::Follow(PageId id) {
  Page& page = At(id);
  page.sibling = page.sibling_before = kNoPage;
  if (page.before == kNoPage) return;
  PageId& first = At(page.before).first_follower;
  page.sibling = first;
  if (first != kNoPage) At(first).sibling_before = id;
  first = id;
}

void PageManager::Unfollow(PageId id) {
  Page& page = At(id);
  if (page.before == kNoPage) return;
  if (page.sibling_before == kNoPage) {
    At(page.before).first_follower = page.sibling;
  } else {
    At(page.sibling_before).sibling = page.sibling;
  }
  if (page.sibling != kNoPage) {
    At(page.sibling).sibling_before = page.sibling_before;
  }
  page.sibling = page.sibling_before = kNoPage;
}

Status PageManager::Audit() const {
  if (free() + used() + cached() != total()) {
    return Internal("pages: " + std::to_string(free()) + " free + " +
                    std::to_string(used()) + " used + " +
                    std::to_string(cached()) + " cached are not " +
                    std::to_string(total()));
  }
  std::vector<bool> listed(pages_.size(), false);
  for (const PageId id : free_) {
    const std::string name = NameOf(Index(id));
    if (listed[Index(id)]) return Internal(name + " is free twice");
    listed[Index(id)] = true;
    if (At(id).refs != 0) {
      return Internal(name + " is free but has " + std::to_string(At(id).refs) +
                      " references");
    }
    if (At(id).registered) return Internal(name + " is free but can be found");
  }
  for (const auto& [left, id] : cached_) {
    const std::string name = NameOf(Index(id));
    if (listed[Index(id)]) return Internal(name + " is cached and listed");
    listed[Index(id)] = true;
    if (At(id).refs != 0 || !At(id).registered || At(id).left != left) {
      return Internal(name + " is cached but has " +
                      std::to_string(At(id).refs) +
                      " references or cannot be found");
    }
  }
  for (size_t page = 0; page < pages_.size(); ++page) {
    const int32_t refs = pages_[page].refs;
    if (refs < 0 || (refs == 0 && !listed[page])) {
      return Internal(NameOf(page) + " is lost with " + std::to_string(refs) +
                      " references");
    }
  }
  RETURN_IF_ERROR(AuditAttached());
  return AuditChains();
}

Status PageManager::AuditAttached() const {
  for (size_t index = 0; index < pages_.size(); ++index) {
    const Page& page = pages_[index];
    const std::string name = NameOf(index);
    const PageId id{static_cast<int32_t>(index)};
    if (page.registered && page.group > 0 &&
        (!At(page.before).registered || At(page.before).group > 0 ||
         Attached(page.before, page.group) != id ||
         At(page.before).refs < page.refs)) {
      return Internal(name + " is attached to a page that does not have it");
    }
    for (size_t i = 0; i < page.attached.size(); ++i) {
      const PageId attached = page.attached[i];
      if (attached == kNoPage) continue;
      if (!page.registered || !At(attached).registered ||
          At(attached).before != id ||
          At(attached).group != static_cast<int32_t>(i) + 1) {
        return Internal(name + " has a page attached that does not know it");
      }
    }
  }
  return OkStatus();
}

Status PageManager::AuditChains() const {
  size_t num_registered = 0;
  size_t num_following = 0;
  for (const Page& page : pages_) {
    for (PageId next = page.first_follower; next != kNoPage;
         next = At(next).sibling) {
      if (!At(next).registered || At(next).before == kNoPage ||
          &At(At(next).before) != &page) {
        return Internal(NameOf(Index(next)) +
                        " is listed behind a page that it does not follow");
      }
      if (++num_following > pages_.size()) {
        return Internal("the lists of following pages have no end");
      }
    }
  }
  for (size_t index = 0; index < pages_.size(); ++index) {
    const Page& page = pages_[index];
    if (!page.registered || page.group > 0) continue;
    ++num_registered;
    if (page.before != kNoPage) --num_following;
    const std::string name = NameOf(index);
    if (FindPage(page.hash, page.before, page.ids) !=
        PageId{static_cast<int32_t>(index)}) {
      return Internal(name + " is not the one that is found for its tokens");
    }
    uint64_t hash = 0;
    if (page.before != kNoPage) {
      const Page& before = At(page.before);
      if (!before.registered) {
        return Internal(name + " follows one that cannot be found");
      }
      if (!heads_may_go_ && (before.refs < page.refs ||
                             (before.refs == 0 && before.left < page.left))) {
        return Internal(name + " outlives the one before it");
      }
      hash = before.hash;
    }
    for (const int32_t id : page.ids) {
      hash = Stir(hash, static_cast<uint32_t>(id));
    }
    if ((hash & hash_mask_) != page.hash) {
      return Internal(name + " has a hash that is not that of its chain");
    }
  }
  if (num_following != 0) {
    return Internal("pages follow one that does not list them");
  }
  if (num_registered != registered_.size()) {
    return Internal(std::to_string(registered_.size()) + " pages are found, " +
                    std::to_string(num_registered) + " are registered");
  }
  return OkStatus();
}

Status PageManager::Audit(
    std::span<const std::vector<PageId>* const> owners) const {
  RETURN_IF_ERROR(Audit());
  std::vector<int32_t> named(pages_.size(), 0);
  for (const std::vector<PageId>* pages : owners) {
    for (const PageId page : *pages) {
      if (page != kNoPage) ++named[Index(page)];
    }
  }
  for (size_t page = 0; page < pages_.size(); ++page) {
    if (named[page] != pages_[page].refs) {
      return Internal(NameOf(page) + " has " +
                      std::to_string(pages_[page].refs) + " references but " +
                      std::to_string(named[page]) + " owners");
    }
  }
  return OkStatus();
}

}  // namespace millrace::scheduler
