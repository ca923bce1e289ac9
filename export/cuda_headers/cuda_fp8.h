// Host code of AOTInductor includes this, and uses nothing of it that cuda_runtime_api.h lacks.
#pragma once

#include "cuda_runtime_api.h"
