// The locks that a thread holds, and whether it asks the app: Swift has no variable of a thread.
#include "CStrandline.h"

static _Thread_local uint64_t held;

uint64_t strandline_locks_held(void) { return held; }

void strandline_set_locks_held(uint64_t places) { held = places; }

static _Thread_local bool asking;

bool strandline_is_asking(void) { return asking; }

void strandline_set_asking(bool is_asking) { asking = is_asking; }
