// Batches over an executor that the test plays, on a folder of its own. A kill
// is played by going on with a copy of the folder as it is at that moment.
#include "server/batches/batches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "tests/support/temp_path.h"

namespace millrace::server {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Long enough for a sanitizer build on a busy machine.
constexpr std::chrono::seconds kPatience(60);

// What all executors of a test share: they die with their server.
struct Model {
  Mutex mu;
  std::map<std::string, int> asked GUARDED_BY(mu);  // by body
  // So many requests are answered; those behind wait for their end.
  std::atomic<int> answers = INT_MAX;
  std::atomic<int> most = 4;
  std::atomic<int> begun = 0;
  std::atomic<int> running = 0;
  std::atomic<int> peak = 0;
  std::atomic<int> refusals = 0;  // so many are refused at first
  std::atomic<bool> loading = false;
  std::atomic<int> checks = 0;  // whether the model is there

  int num_asked() {
    MutexLock lock(mu);
    int sum = 0;
    for (const auto& [body, count] : asked) sum += count;
    return sum;
  }
};

class FakeExecutor final : public LineExecutor {
 public:
  explicit FakeExecutor(Model* model) : model_(model) {}
  ~FakeExecutor() override {
    for (std::thread& thread : threads_) thread.join();
  }

  void Start(LineRequest request, std::stop_token stop, Done done) override {
    const int running = ++model_->running;
    if (running > model_->peak) model_->peak = running;
    if (model_->refusals-- > 0) {
      --model_->running;
      return done({.status = 429, .body = "{}", .retry_after_ms = 1});
    }
    {
      MutexLock lock(model_->mu);
      ++model_->asked[request.body];
    }
    const int number = ++model_->begun;
    threads_.emplace_back([this, number, request, stop, done] {
      while (number > model_->answers && !stop.stop_requested()) {
        std::this_thread::yield();
      }
      --model_->running;
      if (stop.stop_requested()) return done({.status = 499, .body = "{}"});
      const bool bad = request.body.find("bad") != std::string::npos;
      done({.status = bad ? 400 : 200,
            .request_id = "req",
            .body = R"({"said":)" + Json(request.body).dump() +
                    R"(,"usage":{"prompt_tokens":2,"completion_tokens":3}})"});
    });
  }
  Status CheckModel(const std::string& model, const std::string&) override {
    ++model_->checks;
    if (model_->loading) return Unavailable("loading");
    return model == "none" ? NotFound("no such model") : OkStatus();
  }
  bool HasRoom(const std::string&, int running) override {
    return running < model_->most;
  }

 private:
  Model* const model_;
  std::vector<std::thread> threads_;  // started by the runner alone
};

std::string Line(const std::string& id, const std::string& text) {
  const Json line = {{"custom_id", id},
                     {"method", "POST"},
                     {"url", "/v1/completions"},
                     {"body", {{"model", "m"}, {"prompt", text}}}};
  return line.dump() + "\n";
}

std::string Lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += Line("id-" + std::to_string(i), "p" + std::to_string(i));
  }
  return text;
}

class BatchesTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override {
    batches_.reset();
    fs::remove_all(root_);
  }

  std::string Dir(const std::string& name = "a") { return root_ + "/" + name; }
  void Open(const std::string& name = "a", int64_t max_bytes = 1 << 20) {
    batches_.reset();
    auto opened = Batches::Open({.dir = Dir(name),
                                 .max_bytes = max_bytes,
                                 .unix_now = [this] { return now_.load(); }});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    batches_ = *std::move(opened);
    batches_->Start(std::make_unique<FakeExecutor>(&model_));
  }
  std::string Create(const std::string& input,
                     const std::string& tenant = "t") {
    const auto file = batches_->AddFile(
        {.filename = "in.jsonl", .purpose = "batch", .tenant = tenant}, input);
    EXPECT_TRUE(file.ok()) << file.status().ToString();
    Batch wanted;
    wanted.tenant = tenant;
    wanted.endpoint = "/v1/completions";
    wanted.input_file_id = file->id;
    const auto made = batches_->Create(wanted);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    return made->id;
  }
  // The batch once `is_so` holds, or as it is when patience ends.
  template <typename IsSo>
  Batch Await(const std::string& id, IsSo is_so,
              const std::string& tenant = "t") {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    Batch batch = *batches_->Find(id, tenant);
    while (!is_so(batch) && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      batch = *batches_->Find(id, tenant);
    }
    return batch;
  }
  Batch AwaitEnd(const std::string& id, const std::string& tenant = "t") {
    return Await(
        id, [](const Batch& batch) { return batch.ended(); }, tenant);
  }
  // Prompts that a file answers, by custom id; empty where there was no answer.
  std::map<std::string, std::string> Answers(const std::string& file_id) {
    std::map<std::string, std::string> answers;
    const auto text = batches_->files().Read(file_id);
    EXPECT_TRUE(text.ok()) << text.status().ToString();
    EXPECT_TRUE(ForEachLine(*text, [&](std::string_view line, int64_t) {
                  const Json json = Json::parse(line);
                  const std::string id = json["custom_id"];
                  EXPECT_EQ(answers.count(id), 0u) << id << " is there twice";
                  answers[id] =
                      json["response"].is_null()
                          ? std::string()
                          : json["response"]["body"]["said"].get<std::string>();
                  return OkStatus();
                }).ok());
    return answers;
  }

  const std::string root_ = TempPath("batches");
  std::atomic<int64_t> now_ = 1'000'000;
  Model model_;
  std::unique_ptr<Batches> batches_;
};

TEST_F(BatchesTest, EachLineIsAnsweredOnceInItsFile) {
  Open();
  const std::string id = Create(Lines(20) + Line("wrong", "bad"));
  const Batch batch = AwaitEnd(id);
  EXPECT_EQ(batch.status, "completed");
  EXPECT_EQ(batch.total, 21);
  EXPECT_EQ(batch.completed, 20);
  EXPECT_EQ(batch.failed, 1);
  EXPECT_EQ(batch.usage.input_tokens, 42);
  EXPECT_EQ(batch.usage.output_tokens, 63);
  ASSERT_TRUE(batch.has_output && batch.has_errors);
  const auto answers = Answers(batch.output_id);
  ASSERT_EQ(answers.size(), 20u);
  EXPECT_EQ(answers.at("id-7"), R"({"model":"m","prompt":"p7"})");
  EXPECT_EQ(Answers(batch.error_id).count("wrong"), 1u);
  EXPECT_EQ(batches_->files().Find(batch.output_id, "t")->purpose,
            "batch_output");
  EXPECT_LE(model_.peak, model_.most);
  EXPECT_FALSE(fs::exists(BatchRun::OutputPath(Dir() + "/batches/" + id)));
}

TEST_F(BatchesTest, OneThatFailsValidationAsksNothing) {
  Open();
  const Batch twice = AwaitEnd(Create(Line("a", "x") + Line("a", "y")));
  EXPECT_EQ(twice.status, "failed");
  EXPECT_EQ(twice.errors.at(0).code, "duplicate_custom_id");
  std::string other = Line("a", "x");
  other.replace(other.find("\"m\""), 3, "\"none\"");
  const Batch unknown = AwaitEnd(Create(other));
  EXPECT_EQ(unknown.status, "failed");
  EXPECT_EQ(unknown.errors.at(0).code, "model_not_found");
  EXPECT_FALSE(unknown.has_output);
  EXPECT_EQ(model_.num_asked(), 0);
}

TEST_F(BatchesTest, AKilledServerGoesOnWithWhatIsNotAnswered) {
  Open();
  model_.answers = 10;
  const std::string id = Create(Lines(40));
  Await(id, [this](const Batch& batch) {
    return batch.completed == 10 && model_.running == model_.most;
  });
  fs::copy(Dir(), Dir("b"), fs::copy_options::recursive);
  batches_.reset();
  model_.answers = INT_MAX;
  // The kill came within a line.
  const std::string part = BatchRun::OutputPath(Dir("b") + "/batches/" + id);
  std::set<std::string> before;
  {
    std::ifstream lines(part);
    for (std::string line; std::getline(lines, line);) {
      before.insert(Json::parse(line)["custom_id"].get<std::string>());
    }
  }
  ASSERT_EQ(before.size(), 10u);
  std::ofstream(part, std::ios::app) << R"({"id":"batch_req_1","custom_id":"i)";
  {
    MutexLock lock(model_.mu);
    model_.asked.clear();
  }
  Open("b");
  const Batch batch = AwaitEnd(id);
  EXPECT_EQ(batch.status, "completed");
  EXPECT_EQ(batch.completed, 40);
  EXPECT_EQ(batch.usage.output_tokens, 120);
  const auto answers = Answers(batch.output_id);
  ASSERT_EQ(answers.size(), 40u);
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(answers.at("id-" + std::to_string(i)),
              R"({"model":"m","prompt":"p)" + std::to_string(i) + R"("})");
  }
  EXPECT_EQ(model_.num_asked(), 30);
}

TEST_F(BatchesTest, AKillBetweenTheStepsOfTheEndIsMended) {
  Open();
  const std::string id = Create(Lines(3) + Line("wrong", "bad"));
  Batch batch = AwaitEnd(id);
  batches_.reset();
  // As it is after the first of the two files was renamed.
  const std::string files = Dir() + "/files/";
  fs::remove(files + batch.output_id + ".json");
  fs::rename(files + batch.error_id + ".jsonl",
             BatchRun::ErrorPath(Dir() + "/batches/" + id));
  fs::remove(files + batch.error_id + ".json");
  batch.status = "finalizing";
  batch.has_output = batch.has_errors = false;
  std::ofstream(Dir() + "/batches/" + id + ".json") << BatchStateText(batch);
  Open();
  batch = AwaitEnd(id);
  EXPECT_EQ(batch.status, "completed");
  ASSERT_TRUE(batch.has_output && batch.has_errors);
  EXPECT_EQ(Answers(batch.output_id).size(), 3u);
  EXPECT_EQ(Answers(batch.error_id).size(), 1u);
  EXPECT_EQ(model_.num_asked(), 4);
}

TEST_F(BatchesTest, ResultsThatAreOnlyPublishedAfterARestartCount) {
  Open();
  const std::string id = Create(Lines(3) + Line("wrong", "bad"));
  Batch batch = AwaitEnd(id);
  batches_.reset();
  // As it is when all was recorded and nothing renamed.
  const std::string files = Dir() + "/files/";
  const std::string results = Dir() + "/batches/" + id;
  fs::rename(files + batch.output_id + ".jsonl", BatchRun::OutputPath(results));
  fs::remove(files + batch.output_id + ".json");
  fs::rename(files + batch.error_id + ".jsonl", BatchRun::ErrorPath(results));
  fs::remove(files + batch.error_id + ".json");
  batch.status = "finalizing";
  batch.has_output = batch.has_errors = false;
  std::ofstream(results + ".json") << BatchStateText(batch);
  constexpr int64_t kMost = 1 << 20;
  Open("a", kMost);
  batch = AwaitEnd(id);
  ASSERT_TRUE(batch.has_output && batch.has_errors);
  int64_t used = 0;
  for (const std::string& file :
       {batch.input_file_id, batch.output_id, batch.error_id}) {
    used += batches_->files().Find(file, "t")->bytes;
  }
  // What is left fits, and not a byte more.
  const auto fits = [&](int64_t bytes) {
    const auto added =
        batches_->AddFile({.filename = "x", .purpose = "batch", .tenant = "t"},
                          std::string(static_cast<size_t>(bytes), 'x'));
    return added.ok() && batches_->RemoveFile(added->id, "t").ok();
  };
  EXPECT_TRUE(fits(kMost - used));
  EXPECT_FALSE(fits(kMost - used + 1));
  for (const std::string& file :
       {batch.input_file_id, batch.output_id, batch.error_id}) {
    EXPECT_TRUE(batches_->RemoveFile(file, "t").ok());
  }
  EXPECT_TRUE(fits(kMost));
  EXPECT_FALSE(fits(kMost + 1));
}

TEST_F(BatchesTest, ACancelledOneKeepsItsAnswers) {
  Open();
  model_.answers = 2;
  const std::string id = Create(Lines(30));
  Await(id, [](const Batch& batch) { return batch.completed == 2; });
  const auto cancelling = batches_->Cancel(id, "t");
  ASSERT_TRUE(cancelling.ok());
  EXPECT_EQ(cancelling->status, "cancelling");
  const Batch batch = AwaitEnd(id);
  EXPECT_EQ(batch.status, "cancelled");
  EXPECT_EQ(batch.completed, 2);
  EXPECT_EQ(batch.failed, 28);
  EXPECT_EQ(Answers(batch.output_id).size(), 2u);
  EXPECT_EQ(Answers(batch.error_id).size(), 28u);
  EXPECT_EQ(batches_->Cancel(id, "t")->status, "cancelled");
}

TEST_F(BatchesTest, OneThatIsOverItsTimeExpires) {
  Open();
  model_.answers = 0;
  const std::string id = Create(Lines(3));
  Await(id, [this](const Batch&) { return model_.running > 0; });
  now_ += Batches::kWindowSeconds;
  const Batch batch = AwaitEnd(id);
  EXPECT_EQ(batch.status, "expired");
  EXPECT_EQ(batch.failed, 3);
  EXPECT_FALSE(batch.has_output);
  const std::string text = *batches_->files().Read(batch.error_id);
  EXPECT_NE(text.find("batch_expired"), std::string::npos);
  EXPECT_EQ(batches_->Cancel(id, "t").status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(BatchesTest, ARefusalForNowIsTriedAgain) {
  Open();
  model_.loading = true;
  model_.refusals = 5;
  const std::string id = Create(Lines(6));
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (model_.checks == 0 && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
  }
  ASSERT_GT(model_.checks, 0);
  model_.loading = false;
  const Batch batch = AwaitEnd(id);
  EXPECT_EQ(batch.status, "completed");
  EXPECT_EQ(batch.completed, 6);
  EXPECT_FALSE(batch.has_errors);
}

TEST_F(BatchesTest, AFullFolderEndsABatchWithWhatItHas) {
  Open("a", 4000);
  const auto large =
      batches_->AddFile({.filename = "x", .purpose = "batch", .tenant = "t"},
                        std::string(5000, 'x'));
  EXPECT_EQ(large.status().reason(), "storage_full");
  const Batch batch = AwaitEnd(Create(Lines(20)));
  EXPECT_EQ(batch.status, "failed");
  EXPECT_EQ(batch.errors.at(0).code, "storage_full");
  ASSERT_TRUE(batch.has_output);
  const auto answers = Answers(batch.output_id);
  EXPECT_GT(answers.size(), 0u);
  EXPECT_LT(answers.size(), 20u);
  // Its input makes room again.
  EXPECT_TRUE(batches_->RemoveFile(batch.input_file_id, "t").ok());
  EXPECT_TRUE(batches_->RemoveFile(batch.output_id, "t").ok());
  EXPECT_EQ(AwaitEnd(Create(Lines(2))).status, "completed");
}

TEST_F(BatchesTest, TenantsSeeTheirOwnAndTakeTurns) {
  Open();
  model_.answers = 0;
  model_.most = 1;
  const std::string first = Create(Lines(10), "one");
  const std::string second = Create(Lines(10), "two");
  EXPECT_FALSE(batches_->Find(first, "two").ok());
  EXPECT_FALSE(batches_->Cancel(first, "two").ok());
  EXPECT_EQ(batches_->List("one").size(), 1u);
  const std::string input = batches_->Find(first, "one")->input_file_id;
  EXPECT_FALSE(batches_->files().Find(input, "two").ok());
  EXPECT_FALSE(batches_->RemoveFile(input, "two").ok());
  EXPECT_EQ(batches_->RemoveFile(input, "one").reason(), "file_in_use");
  EXPECT_EQ(batches_->files().List("two", "batch").size(), 1u);
  EXPECT_EQ(batches_->files().List("two", "other").size(), 0u);
  model_.answers = INT_MAX;
  EXPECT_EQ(AwaitEnd(first, "one").completed, 10);
  EXPECT_EQ(AwaitEnd(second, "two").completed, 10);
  EXPECT_TRUE(batches_->RemoveFile(input, "one").ok());
}

TEST_F(BatchesTest, AFolderHasOneServer) {
  Open();
  const auto other = Batches::Open({.dir = Dir()});
  EXPECT_EQ(other.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(other.status().field(), "batch_dir");
  const auto nowhere = Batches::Open({.dir = root_ + "/x/y"});
  EXPECT_EQ(nowhere.status().field(), "batch_dir");
}

TEST_F(BatchesTest, FilesExpireAndTornOnesGo) {
  Open();
  const auto kept = batches_->AddFile(
      {.filename = "x", .purpose = "batch", .tenant = "t"}, "hello");
  const auto brief = batches_->AddFile(
      {.filename = "y", .purpose = "batch", .tenant = "t", .expires_at = 10},
      "bye");
  ASSERT_TRUE(kept.ok() && brief.ok());
  EXPECT_EQ(*brief->expires_at, now_ + 10);
  batches_.reset();
  const std::string torn = Dir() + "/files/file-torn.jsonl";
  std::ofstream(torn) << "half";
  now_ += 10;
  Open();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (batches_->files().Find(brief->id, "t").ok() &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(batches_->files().Find(brief->id, "t").ok());
  EXPECT_EQ(*batches_->files().Read(kept->id), "hello");
  EXPECT_FALSE(fs::exists(torn));
}

}  // namespace
}  // namespace millrace::server
