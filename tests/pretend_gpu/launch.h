#pragma once
// Ends the life of all modules and their functions; launches that still run keep what they need.
void unload_all_modules();
