package store

import (
	"hash/maphash"
	"sync"

	"edda/store/format"
)

// maxGeneration bounds each half of the claims that are known: together those of several
// seconds at full load, in less than a megabyte.
const maxGeneration = 16 << 10

// recentClaims is a two-generation set of the commands of the latest claims, each as a hash
// of its id. Commands come in another order than they were sent in: many are older than the
// latest command with a claim, and need no lookup where this set lacks them. Two ids of one
// hash cost a lookup.
//
// A full newer generation replaces the older one. Of commands at or before floor, which it
// may have dropped, it knows nothing.
type recentClaims struct {
	mu           sync.Mutex // guards what follows
	newer, older claimGeneration
	floor        uint64 // the time of the latest command that may be forgotten, in milliseconds
}

type claimGeneration struct {
	ids    map[uint64]struct{}
	latest uint64 // the time of the latest command
}

// recentCommand is the command of a claim: the hash of its id, and the time that it says.
type recentCommand struct{ id, millis uint64 }

func (c recentCommand) hour() uint32 { return uint32(c.millis / format.HourMillis) }

// recentSeed is of this process, as all that is known of its claims is.
var recentSeed = maphash.MakeSeed()

func recentOf(commandID string) recentCommand {
	return recentCommand{maphash.String(recentSeed, commandID), format.CommandMillis(commandID)}
}

// add takes the commands of claims, before readers can see these.
func (c *recentClaims) add(commands []recentCommand) {
	if len(commands) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, command := range commands {
		if command.millis <= c.floor {
			continue // lacks is false for it
		}
		if len(c.newer.ids) >= maxGeneration {
			c.forget()
		}
		if c.newer.ids == nil {
			c.newer.ids = map[uint64]struct{}{}
		}
		c.newer.ids[command.id] = struct{}{}
		c.newer.latest = max(c.newer.latest, command.millis)
	}
}

// forget drops the older generation.
func (c *recentClaims) forget() {
	c.floor = max(c.floor, c.older.latest)
	clear(c.older.ids)
	c.newer, c.older = claimGeneration{ids: c.older.ids}, c.newer
}

// lacks tells that a command has no claim.
func (c *recentClaims) lacks(command recentCommand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if command.millis <= c.floor {
		return false
	}
	_, newer := c.newer.ids[command.id]
	_, older := c.older.ids[command.id]
	return !newer && !older
}
