#include "models/text/spaces.h"

#include <algorithm>
#include <iterator>

namespace millrace::models {
namespace {

constexpr std::string_view kSpaces[] = {" ",
                                        "\t",
                                        "\n",
                                        "\v",
                                        "\f",
                                        "\r",
                                        "\xc2\x85",
                                        "\xc2\xa0",
                                        "\xe1\x9a\x80",
                                        "\xe2\x80\x80",
                                        "\xe2\x80\x81",
                                        "\xe2\x80\x82",
                                        "\xe2\x80\x83",
                                        "\xe2\x80\x84",
                                        "\xe2\x80\x85",
                                        "\xe2\x80\x86",
                                        "\xe2\x80\x87",
                                        "\xe2\x80\x88",
                                        "\xe2\x80\x89",
                                        "\xe2\x80\x8a",
                                        "\xe2\x80\xa8",
                                        "\xe2\x80\xa9",
                                        "\xe2\x80\xaf",
                                        "\xe2\x81\x9f",
                                        "\xe3\x80\x80"};

}  // namespace

size_t AfterSpaces(std::string_view text, size_t at) {
  for (;;) {
    const auto* space = std::ranges::find_if(kSpaces, [&](std::string_view s) {
      return text.substr(at).starts_with(s);
    });
    if (space == std::end(kSpaces)) return at;
    at += space->size();
  }
}

size_t BeforeSpaces(std::string_view text, size_t least, size_t end) {
  for (;;) {
    const std::string_view left = text.substr(least, end - least);
    const auto* space = std::ranges::find_if(
        kSpaces, [&](std::string_view s) { return left.ends_with(s); });
    if (space == std::end(kSpaces)) return end;
    end -= space->size();
  }
}

}  // namespace millrace::models
