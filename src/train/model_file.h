// SPDX-License-Identifier: Apache-2.0
// The description of a model as metadata of its file.
#pragma once

#include <string>

#include "epilogue/predictor.h"

namespace epilogue::train {

// `path` is for messages. Code: NotAModel.
Result<ModelDescription> description_of(const Metadata& metadata, const std::string& path);

Failure not_a_model(const std::string& path, const std::string& detail);

}  // namespace epilogue::train
