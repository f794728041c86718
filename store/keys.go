package store

import (
	"fmt"

	"edda/store/format"
	"edda/store/wal"
)

// Keys are sequences of parts that sort as their parts do, one after the other,
// whatever bytes a part holds. FORMAT.md describes them for readers of the file.

// partOf is the bucket of a day or an hour. What else lies there nobody of us
// wrote: edda doctor tells, too.
func partOf(name format.Keyspace, space *wal.Bucket, key []byte) (*wal.Bucket, error) {
	part := space.Bucket(key)
	if part == nil || len(key) != format.PartSize {
		return nil, fmt.Errorf("%s: %x is no bucket of a day or an hour: %w", name, key, format.ErrKey)
	}
	return part, nil
}
