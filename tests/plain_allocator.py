"""A second allocator, written without the tricks of the project's, to hold them against."""

MIB = 2**20


class PlainAllocator:
    """The rules of c10/cuda/CUDACachingAllocator.cpp over plain lists that are searched from end to end.

    A segment is a list of [size, state], in address order; states are "used", "free" and "unmapped". Handles are the
    entries themselves.
    """

    def __init__(self, expandable):
        self.expandable = expandable
        self.segments = {True: [], False: []}
        if expandable:
            self.segments = {True: [[[2**60, "unmapped"]]], False: [[[2**60, "unmapped"]]]}
        self.allocated = self.reserved = self.peak_allocated = self.peak_reserved = 0

    def allocate(self, request):
        size = max((request + 511) // 512 * 512, 512)
        small = size <= MIB
        segment, index = self.find(small, size) or self.more(small, size)
        left = segment[index][0] - size
        if left >= 512 if small or self.expandable else left > MIB:
            segment[index : index + 1] = [[size, "used"], [left, "free"]]
        segment[index][1] = "used"
        self.allocated += segment[index][0]
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return small, segment, segment[index]

    def find(self, small, size):
        candidates = []
        for number, segment in enumerate(self.segments[small]):
            for index, (bytes_, state) in enumerate(segment):
                if state == "free" and bytes_ >= size:
                    behind = segment[index + 1] if index + 1 < len(segment) else (0, "used")
                    room = bytes_ + (behind[0] if behind[1] == "unmapped" else 0)
                    candidates.append((bytes_, number, index, room))
        if not candidates:
            return None
        candidates.sort()
        chosen = 0
        while chosen + 1 < len(candidates) and candidates[chosen + 1][3] < candidates[chosen][3]:
            chosen += 1
        _, number, index, _ = candidates[chosen]
        return self.segments[small][number], index

    def more(self, small, size):
        if not self.expandable:
            own = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            bytes_ = 2 * MIB if small else 20 * MIB if size < 10 * MIB else own
            self.reserve(bytes_)
            self.segments[small].append([[bytes_, "free"]])
            return self.segments[small][-1], 0
        # Nothing is unmapped before the end as long as nobody empties the cache.
        segment, page = self.segments[small][0], (2 if small else 20) * MIB
        last = segment[-2] if len(segment) > 1 and segment[-2][1] == "free" else None
        mapped = (size - (last[0] if last else 0) + page - 1) // page * page
        self.reserve(mapped)
        segment[-1][0] -= mapped
        if last:
            last[0] += mapped
        else:
            segment.insert(-1, [mapped, "free"])
        return segment, len(segment) - 2

    def reserve(self, bytes_):
        self.reserved += bytes_
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def free(self, handle):
        _, segment, entry = handle
        self.allocated -= entry[0]
        entry[1] = "free"
        index = next(i for i, other in enumerate(segment) if other is entry)
        if index + 1 < len(segment) and segment[index + 1][1] == "free":
            entry[0] += segment.pop(index + 1)[0]
        if index and segment[index - 1][1] == "free":
            entry[0] += segment.pop(index - 1)[0]
