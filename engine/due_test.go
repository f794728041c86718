package engine

import (
	"time"

	"edda/store"
)

func row(correlation string, at time.Time) []store.Due {
	return []store.Due{{Time: at, Key: key(correlation)}}
}
