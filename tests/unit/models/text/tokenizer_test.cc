// The tokenizer on vocabularies of a few merges: ids are counted by hand
// (bytes are 0 to 255, merges follow from 256, then special tokens).
#include "models/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/models/text/tiny_vocabulary.h"

namespace millrace::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr EncodeOptions kParse{.add_special = false, .parse_special = true};

std::unique_ptr<Tokenizer> Make(Vocabulary vocabulary) {
  auto out = Tokenizer::Create(std::move(vocabulary));
  EXPECT_TRUE(out.ok()) << out.status().ToString();
  return std::move(out).value();
}

// 256 he, 257 ll, 258 hell, 259 hello, 260 Ġa, 261 <|end|>, 262 <think>
std::unique_ptr<Tokenizer> Hello() {
  return Make(TinyVocabulary("gpt-2", {"h e", "l l", "he ll", "hell o", "Ġ a"},
                             {{"<|end|>", TokenKind::kControl},
                              {"<think>", TokenKind::kUserDefined}}));
}

std::string ErrorOf(Vocabulary vocabulary) {
  const auto made = Tokenizer::Create(std::move(vocabulary));
  EXPECT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  return std::string(made.status().message());
}

TEST(Tokenizer, MergesWithinPieces) {
  EXPECT_THAT(Hello()->Encode("hello a", {}), ElementsAre(259, 260));
  EXPECT_THAT(Hello()->Encode("helhe", {}), ElementsAre(256, 'l', 256));
  EXPECT_TRUE(Hello()->Encode("", kParse).empty());
}

TEST(Tokenizer, ControlTokensAreTextUnlessAskedFor) {
  const auto tokenizer = Hello();
  EXPECT_THAT(tokenizer->Encode("x<|end|>y", kParse),
              ElementsAre('x', 261, 'y'));
  EXPECT_THAT(tokenizer->Encode("<|end|>", {}),
              ElementsAre('<', '|', 'e', 'n', 'd', '|', '>'));
}

TEST(Tokenizer, UserDefinedTokensAreFoundInEveryText) {
  EXPECT_THAT(Hello()->Encode("<think>a", {}), ElementsAre(262, 'a'));
}

TEST(Tokenizer, TheLongestSpecialTokenWins) {
  const auto tokenizer = Make(TinyVocabulary("gpt-2", {},
                                             {{"<a", TokenKind::kControl},
                                              {"<ab>", TokenKind::kControl},
                                              {"b>c", TokenKind::kControl}}));
  EXPECT_THAT(tokenizer->Encode("<ab>c<ab", kParse),
              ElementsAre(257, 'c', 256, 'b'));
}

TEST(Tokenizer, PartsJoinAsTextButKeepSpecialTokensApart) {
  const auto tokenizer = Hello();
  const Tokenizer::Part parts[] = {{"<|end|>he", true},
                                   {"llo<|end|>", false},
                                   {"<|e", false},
                                   {"nd|>", true}};
  const Ids ids = tokenizer->EncodeParts(parts, false);
  EXPECT_EQ(ids[0], 261);
  EXPECT_EQ(ids[1], 259);  // "hello", though two parts hold it
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 261), 1);
  EXPECT_EQ(tokenizer->Decode(ids, true), "<|end|>hello<|end|><|end|>");
}

TEST(Tokenizer, IllFormedBytesBecomeReplacementCharacters) {
  const auto tokenizer = Hello();
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("a\xC3", {}), false),
            "a\uFFFD");
  // The two halves of a character are one when they are neighbours.
  const Tokenizer::Part parts[] = {{"\xC3", false}, {"\xA9", false}};
  EXPECT_EQ(tokenizer->Decode(tokenizer->EncodeParts(parts, false), false),
            "é");
}

TEST(Tokenizer, BytesWithoutATokenVanishAndNeighboursMerge) {
  Vocabulary words = TinyVocabulary("gpt-2", {"! !"});
  words.tokens[4] = "unused";  // no token is the byte 04 now
  const auto tokenizer = Make(std::move(words));
  EXPECT_THAT(tokenizer->Encode("a\x04!\x04!", {}), ElementsAre('a', 256));
}

TEST(Tokenizer, Llama3TakesWholePiecesWithoutMerging) {
  // No merge makes "abc" from its letters, but it is a token.
  Vocabulary words = TinyVocabulary("llama-bpe", {"a b", "b c", "a bc"});
  EXPECT_THAT(Make(words)->Encode("abc", {}), ElementsAre(258));
  words.pre = "gpt-2";
  EXPECT_THAT(Make(words)->Encode("abc", {}), ElementsAre(256, 'c'));
}

TEST(Tokenizer, AWholePieceIsNeverAControlToken) {
  const auto tokenizer =
      Make(TinyVocabulary("llama-bpe", {}, {{"stop", TokenKind::kControl}}));
  EXPECT_THAT(tokenizer->Encode("stop", {}), ElementsAre('s', 't', 'o', 'p'));
}

TEST(Tokenizer, ASpecialTokenThatIsHalfACharacterIsRefused) {
  const auto refused = Tokenizer::Create(
      TinyVocabulary("llama-bpe", {}, {{"\xc3", TokenKind::kUserDefined}}));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              testing::HasSubstr("special token 256 is not valid UTF-8"));
}

TEST(Tokenizer, BosIsAddedOnlyWhenAskedForAndWanted) {
  Vocabulary words =
      TinyVocabulary("gpt-2", {}, {{"<s>", TokenKind::kControl}});
  words.bos_id = 256;
  EXPECT_THAT(Make(words)->Encode("a", {.add_special = true}),
              ElementsAre('a'));
  words.add_bos = true;
  EXPECT_THAT(Make(words)->Encode("a", {.add_special = true}),
              ElementsAre(256, 'a'));
  EXPECT_THAT(Make(words)->Encode("a", {}), ElementsAre('a'));
}

TEST(Tokenizer, PiecesOfSpecialTokensShowOnlyWhenAskedFor) {
  const auto tokenizer = Hello();
  EXPECT_EQ(tokenizer->Piece(260, false), " a");
  EXPECT_EQ(tokenizer->Piece(261, false), "");
  EXPECT_EQ(tokenizer->Piece(261, true), "<|end|>");
  EXPECT_EQ(tokenizer->Piece(262, false), "<think>");
  EXPECT_EQ(tokenizer->Piece(-1, true), "");
  EXPECT_EQ(tokenizer->Piece(263, true), "");
  EXPECT_EQ(tokenizer->size(), 263);
  EXPECT_EQ(tokenizer->IdOfSpecial("<|end|>"), 261);
  EXPECT_EQ(tokenizer->IdOfSpecial("hello"), std::nullopt);
  EXPECT_TRUE(tokenizer->vocabulary().merges.empty());
}

TEST(Tokenizer, ByteTokensAreTheirByte) {
  const auto tokenizer =
      Make(TinyVocabulary("gpt-2", {}, {{"<0xfF>", TokenKind::kByte}}));
  EXPECT_EQ(tokenizer->Piece(256, false), "\xFF");
}

TEST(Tokenizer, AnswersEndAtEveryEogId) {
  Vocabulary words = TinyVocabulary("gpt-2", {});
  words.eog_ids = {7, 9};
  const auto tokenizer = Make(std::move(words));
  EXPECT_TRUE(tokenizer->EndsAnswer(9));
  EXPECT_FALSE(tokenizer->EndsAnswer(8));
  EXPECT_FALSE(tokenizer->EndsAnswer(-1));
  EXPECT_FALSE(tokenizer->EndsAnswer(256));
}

TEST(Tokenizer, ALongRunOfOneLetterIsNotQuadratic) {
  const auto tokenizer = Make(TinyVocabulary("gpt-2", {"a a", "aa aa"}));
  EXPECT_EQ(tokenizer->Encode(std::string(1 << 20, 'a'), {}),
            Ids(1 << 18, 257));
}

TEST(Tokenizer, MalformedVocabulariesAreRefusedWithTheReason) {
  const Vocabulary good = TinyVocabulary("gpt-2", {"a b"});
  Vocabulary words = good;
  words.model = "rwkv";
  EXPECT_THAT(ErrorOf(words), HasSubstr("'rwkv'"));
  words = good;
  words.kinds.pop_back();
  EXPECT_THAT(ErrorOf(words), HasSubstr("257 tokens but 256 kinds"));
  words = good;
  words.merges[0] = "ab";
  EXPECT_THAT(ErrorOf(words), HasSubstr("merge 0 is 'ab'"));
  words = good;
  words.merges[0] = "a c";
  EXPECT_THAT(ErrorOf(words), HasSubstr("'ac' is no ordinary token"));
  words = good;
  words.eog_ids = {257};
  EXPECT_THAT(ErrorOf(words), HasSubstr("is 257"));
  words = good;
  words.add_bos = true;
  EXPECT_THAT(ErrorOf(words), HasSubstr("BOS"));
  words = {};
  words.model = "gpt2";
  EXPECT_THAT(ErrorOf(words), HasSubstr("0 tokens"));
}

TEST(Tokenizer, AMergeIntoAControlTokenIsRefused) {
  // Else text of a user could merge into it.
  Vocabulary words = TinyVocabulary("gpt-2", {"a b"});
  words.kinds[256] = TokenKind::kControl;
  EXPECT_THAT(ErrorOf(words), HasSubstr("'ab' is no ordinary token"));
}

}  // namespace
}  // namespace millrace::models
