// SPDX-License-Identifier: Apache-2.0
// The trace half in one include: reads, analyses, compares and renders traces of PyTorch's profiler
// and of our own. Each header of include/epilogue/trace also stands alone.
#pragma once

#include "epilogue/trace/answer.h"
#include "epilogue/trace/compile_summary.h"
#include "epilogue/trace/cpu.h"
#include "epilogue/trace/critical_path.h"
#include "epilogue/trace/diff.h"
#include "epilogue/trace/event.h"
#include "epilogue/trace/explain.h"
#include "epilogue/trace/file.h"
#include "epilogue/trace/fusion.h"
#include "epilogue/trace/gemms.h"
#include "epilogue/trace/host.h"
#include "epilogue/trace/hot_spots.h"
#include "epilogue/trace/idle.h"
#include "epilogue/trace/kernel_name.h"
#include "epilogue/trace/links.h"
#include "epilogue/trace/memory.h"
#include "epilogue/trace/queues.h"
#include "epilogue/trace/ranks.h"
#include "epilogue/trace/report.h"
#include "epilogue/trace/slow_steps.h"
#include "epilogue/trace/table.h"
#include "epilogue/trace/time.h"
#include "epilogue/trace/timeline.h"
#include "epilogue/trace/verdict.h"
