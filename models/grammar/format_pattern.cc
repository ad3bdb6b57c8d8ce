// Put together from parts, each with the rule that it stands for.
#include "models/grammar/format_pattern.h"

namespace millrace::models {
namespace {

std::string Group(const std::string& inside) { return "(?:" + inside + ")"; }

// full-date of RFC 3339, without the year 0, which many calendars lack.
std::string Date() {
  const std::string year = Group(
      "[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3}");
  const std::string month_day = Group(
      "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
      "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
      "|02-(?:0[1-9]|1[0-9]|2[0-8])");
  // Divisible by 4 and not by 100, or by 400.
  const std::string fourth = "(?:0[48]|[2468][048]|[13579][26])";
  const std::string leap = Group("[0-9]{2}" + fourth + "|" + fourth + "00");
  return Group(year + "-" + month_day + "|" + leap + "-02-29");
}

// full-time of RFC 3339, with nine digits behind the point at most and without
// leap seconds, of which there is one in some years.
std::string Time() {
  const std::string hour = "(?:[01][0-9]|2[0-3])";
  const std::string sixty = "[0-5][0-9]";
  return hour + ":" + sixty + ":" + sixty + "(?:\\.[0-9]{1,9})?" +
         Group("Z|[+-]" + hour + ":" + sixty);
}

// dec-octet of RFC 3986, section 3.2.2: no leading zeros.
std::string Ipv4() {
  const std::string part = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9][0-9]|[0-9])";
  return part + "(?:\\." + part + "){3}";
}

// IPv6address of RFC 3986, section 3.2.2.
std::string Ipv6() {
  const std::string h16 = "[0-9A-Fa-f]{1,4}";
  const std::string ls32 = Group(h16 + ":" + h16 + "|" + Ipv4());
  const auto before = [&](const char* count) {
    return Group(h16 + ":") + count;
  };
  std::string all = before("{6}") + ls32 + "|::" + before("{5}") + ls32;
  // Groups before "::" (one more than `left`), and behind it.
  constexpr const char* kLeft[] = {"", "{0,1}", "{0,2}", "{0,3}", "{0,4}"};
  constexpr const char* kRight[] = {"{4}", "{3}", "{2}", "{1}", ""};
  for (int i = 0; i < 5; ++i) {
    const std::string left = i == 0 ? h16 : before(kLeft[i]) + h16;
    const std::string right = i == 4 ? ls32 : before(kRight[i]) + ls32;
    all += "|" + Group(left) + "?::" + right;
  }
  all += "|" + Group(before("{0,5}") + h16) + "?::" + h16;
  all += "|" + Group(before("{0,6}") + h16) + "?::";
  return Group(all);
}

// RFC 1123, section 2.1: labels of letters, digits and hyphens inside, of 63
// characters at most, 253 together. Two hyphens in a row are left out, since at
// the third place they announce Punycode (RFC 5891, section 4.2.3.1). Labels
// are either few or short: 4 of 61 or 10 of 23 characters.
std::string Hostname() {
  const auto labels = [](const std::string& length, const std::string& count) {
    const std::string label = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0," + length + "}";
    return label + "(?:\\." + label + "){0," + count + "}";
  };
  return Group(labels("30", "3") + "|" + labels("11", "9"));
}

// json-pointer of RFC 6901, section 3. The library's own takes quotes, which
// would end the string.
std::string Pointer() { return "(?:/(?:[^~/]|~[01])*)*"; }

// relative-json-pointer of draft-bhutton-relative-json-pointer-00, section 3,
// without its index manipulation.
std::string RelativePointer() {
  return "(?:0|[1-9][0-9]{0,8})(?:#|" + Pointer() + ")";
}

}  // namespace

std::string FormatPattern(std::string_view format) {
  std::string whole;
  if (format == "date") whole = Date();
  if (format == "time") whole = Time();
  if (format == "date-time") whole = Date() + "T" + Time();
  if (format == "ipv4") whole = Ipv4();
  if (format == "ipv6") whole = Ipv6();
  if (format == "hostname") whole = Hostname();
  if (format == "json-pointer") whole = Pointer();
  if (format == "relative-json-pointer") whole = RelativePointer();
  return whole.empty() ? whole : "^" + whole + "$";
}

}  // namespace millrace::models
