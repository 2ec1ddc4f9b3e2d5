// SPDX-License-Identifier: Apache-2.0
#include "epilogue/runtime.h"

#include "base/cpu_features.h"

namespace epilogue {

std::string_view version() { return EPILOGUE_VERSION; }
std::string active_isa_name() { return std::string(isa_name(active_isa())); }
std::string detected_isa_name() { return std::string(isa_name(detected_isa())); }

}  // namespace epilogue
