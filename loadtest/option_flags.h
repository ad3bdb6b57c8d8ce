// Every flag of a measurement with its help, in the groups of --help. What
// their values mean stands in options.h.
#pragma once

namespace boost::program_options {
class options_description;
}  // namespace boost::program_options

namespace millrace::loadtest {

boost::program_options::options_description AllFlags();

}  // namespace millrace::loadtest
