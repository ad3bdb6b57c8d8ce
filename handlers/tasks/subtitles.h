// A transcript as subtitles: SubRip (srt) and WebVTT (vtt), from the times of
// its words.
//
//   1                                    WEBVTT
//   00:00:00,100 --> 00:00:01,300
//   ada lives                            00:00:00.100 --> 00:00:01.300
//                                        ada lives
//
// A cue has one line of at most 42 characters, lasts at most 7 s unless its
// first word is longer, and ends before a pause of 1 s and more.
//
// Pure functions.
// Source: W3C "WebVTT", section 4 (file structure).
#pragma once

#include <string>
#include <vector>

#include "handlers/tasks/transcript.h"

namespace millrace::handlers {

std::string SubRip(const std::vector<TimedWord>& words);
std::string WebVtt(const std::vector<TimedWord>& words);

}  // namespace millrace::handlers
