package store

import (
	"hash/maphash"
	"sync"
)

// recentHalfMost bounds each half of the claims that are known: together those of several
// seconds at full load, in less than a megabyte.
const recentHalfMost = 16 << 10

// recent are the commands of the latest claims, each as a hash of its id. Commands are
// taken up in another order than they were sent in: many are older than one that has a
// claim already, and need not be looked up all the same if they are not among these. Two
// ids of one hash cost a look.
//
// It forgets by halves. What it says of commands that are not later than all that it
// has forgotten is nothing.
type recent struct {
	mu           sync.Mutex // guards what follows
	newer, older recentHalf
	floor        uint64 // the time of the latest command that may be forgotten, in milliseconds
}

type recentHalf struct {
	ids    map[uint64]struct{}
	latest uint64 // the time of the latest command
}

// recentCommand is the command of a claim: the hash of its id, and the time that it says.
type recentCommand struct{ id, millis uint64 }

func (c recentCommand) hour() uint32 { return uint32(c.millis / hourMillis) }

// recentSeed is of this process, as all that is known of its claims is.
var recentSeed = maphash.MakeSeed()

func recentOf(commandID string) recentCommand {
	return recentCommand{maphash.String(recentSeed, commandID), commandMillis(commandID)}
}

// add takes the commands of claims that can soon be seen.
func (c *recent) add(commands []recentCommand) {
	if len(commands) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, command := range commands {
		if command.millis <= c.floor {
			continue // whoever asks for it is told to look
		}
		if len(c.newer.ids) >= recentHalfMost {
			c.forget()
		}
		if c.newer.ids == nil {
			c.newer.ids = map[uint64]struct{}{}
		}
		c.newer.ids[command.id] = struct{}{}
		c.newer.latest = max(c.newer.latest, command.millis)
	}
}

// forget drops the older half.
func (c *recent) forget() {
	c.floor = max(c.floor, c.older.latest)
	clear(c.older.ids)
	c.newer, c.older = recentHalf{ids: c.older.ids}, c.newer
}

// lacks tells that a command has no claim.
func (c *recent) lacks(command recentCommand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if command.millis <= c.floor {
		return false
	}
	_, newer := c.newer.ids[command.id]
	_, older := c.older.ids[command.id]
	return !newer && !older
}
