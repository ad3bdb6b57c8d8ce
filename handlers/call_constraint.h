// Holds calls of tools to the schemas of the request's tools.
//
//   models::OutputConstraint call = CallConstraint(formats, chat);
//   if (call) request.options.constraint = std::move(call);
//
// Pure.
#pragma once

#include "config/base/status.h"
#include "handlers/messages.h"
#include "handlers/parsers/formats.h"
#include "models/grammar/output_constraint.h"

namespace millrace::handlers {

// Where a call must come: what must follow the text of ForcedCall
// (tool_prompt.h), which is the arguments of the one tool that may be called,
// or any tool's name and arguments, then other calls if there may be several.
//
// Where a call may come: any text, in which the beginning of a call
// (ToolFormat::trigger) is followed by the rest of one.
//
// None where no call may come, and where one may come in a format whose calls
// begin as other texts do (pythonic).
models::OutputConstraint CallConstraint(const OutputFormats& formats,
                                        const ChatPrompt& chat);

// Calls need not come and no tool is `strict`: a request whose tools cannot be
// held to their schemas is answered without that.
bool MayRunFreely(const ChatPrompt& chat);

// The same refusal of such a constraint, at the tool whose schema is at fault:
// tools[i].function.parameters. Statuses that do not refuse a schema come back
// as they are.
Status AtTool(const OutputFormats& formats, const ChatPrompt& chat,
              const Status& refusal);

}  // namespace millrace::handlers
