// SPDX-License-Identifier: Apache-2.0
// Where the time goes: on the device, while the device idles, on the host, by step, op and module.
// Each of these headers also stands alone.
#pragma once

#include "epilogue/trace/compile_summary.h"
#include "epilogue/trace/hot_spots.h"
#include "epilogue/trace/idle.h"
#include "epilogue/trace/slow_steps.h"
#include "epilogue/trace/timeline.h"
#include "epilogue/trace/verdict.h"
