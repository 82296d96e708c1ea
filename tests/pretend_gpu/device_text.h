#pragma once
// A hash of what stands before each kernel's source: code compiled with another text does not load.
unsigned long device_version();
