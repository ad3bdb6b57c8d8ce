# Writes the files of ASSETS as one C++ source:
#   cmake -DASSETS=a;b -DFOLDER=where -DOUTPUT=file -P embed.cmake
set(text "// Made by embed.cmake.\n#include \"server/console/console.h\"\n\n")
string(APPEND text "namespace millrace::server {\nnamespace {\n\n")
string(APPEND text "constexpr ConsoleFile kFiles[] = {\n")
foreach(asset IN LISTS ASSETS)
  file(READ ${FOLDER}/${asset} content)
  string(APPEND text
    "    {\"${asset}\", R\"millrace(${content})millrace\"},\n")
endforeach()
string(APPEND text "};\n\n}  // namespace\n\n")
string(APPEND text
  "std::span<const ConsoleFile> ConsoleFiles() { return kFiles; }\n\n")
string(APPEND text "}  // namespace millrace::server\n")
file(WRITE ${OUTPUT} "${text}")
