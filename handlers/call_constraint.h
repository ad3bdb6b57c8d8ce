// Holds a call that must come to the schemas of the request's tools.
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

// What must follow the text of ForcedCall (tool_prompt.h): the arguments of the
// one tool that may be called, or the name of any tool and its arguments. None
// where a call need not come, or where the model's format does not write
// arguments as JSON (pythonic, gemma). One call comes, then the completion
// ends.
models::OutputConstraint CallConstraint(const OutputFormats& formats,
                                        const ChatPrompt& chat);

// The same refusal of such a constraint, at the tool whose schema is at fault:
// tools[i].function.parameters. Statuses that do not refuse a schema come back
// as they are.
Status AtTool(const ChatPrompt& chat, const Status& refusal);

}  // namespace millrace::handlers
