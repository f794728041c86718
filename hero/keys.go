package hero

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// ActorKey returns the key of an actor's hash.
func ActorKey(id uint32) string { return key("actor", id) }

// ContextKey returns the key of a context's hash.
func ContextKey(id uint32) string { return key("context", id) }

// FlowKey returns the key of a flow's hash.
func FlowKey(id uint32) string { return key("flow", id) }

// RunnerKey returns the key of a runner's hash.
func RunnerKey(id uint32) string { return key("runner", id) }

// RunnerAliveKey returns the key of a runner's heartbeat, which expires when the runner
// stops renewing it.
func RunnerAliveKey(id uint32) string { return RunnerKey(id) + ":alive" }

// JobKey returns the key of a job's hash.
func JobKey(caller, id uint32) string { return key("job", caller, id) }

// JobCallersKey returns the key of the set of callers that have a job of that id in a
// context. It finds a job by its id alone.
func JobCallersKey(id uint32) string { return "edda:" + key("job_callers", id) }

// MessageKey returns the key of a message's hash.
func MessageKey(caller, id uint32) string { return key("message", caller, id) }

func key(kind string, ids ...uint32) string {
	b := []byte(kind)
	for _, id := range ids {
		b = strconv.AppendUint(append(b, ':'), uint64(id), 10)
	}
	return string(b)
}

// ParseJobKey reads job:<caller>:<id>.
func ParseJobKey(s string) (caller, id uint32, err error) { return parsePair("job", s) }

// ParseMessageKey reads message:<caller>:<id>.
func ParseMessageKey(s string) (caller, id uint32, err error) { return parsePair("message", s) }

func parsePair(kind, s string) (uint32, uint32, error) {
	ids, ok := parseKey(kind, s)
	if !ok {
		return 0, 0, fmt.Errorf("%q is no key of a %s: want %s:<caller_id>:<id>", s, kind, kind)
	}
	return ids[0], ids[1], nil
}

// parseKey reads the ids in a key: caller and id of a job or message, the id of any other
// kind. Keys of other programs with the same prefix (flow:stats, context:7:lock) have none.
func parseKey(kind, s string) (ids [2]uint32, ok bool) {
	parts := strings.Split(s, ":")
	want := 2
	if kind == "job" || kind == "message" {
		want = 3
	}
	if len(parts) != want || parts[0] != kind {
		return ids, false
	}
	ids = KeyIDs(s)
	return ids, key(kind, ids[:want-1]...) == s
}

// IsKey tells a key of the documents from another program's with the same prefix.
func IsKey(kind, s string) bool {
	_, ok := parseKey(kind, s)
	return ok
}

// KeyIDs returns the one or two ids in a key of the documents.
func KeyIDs(key string) (ids [2]uint32) {
	_, rest, _ := strings.Cut(key, ":")
	first, second, _ := strings.Cut(rest, ":")
	for i, part := range []string{first, second} {
		n, _ := strconv.ParseUint(part, 10, 32) // 0 where it is no id
		ids[i] = uint32(n)
	}
	return ids
}

// CompareKeys orders the keys of one kind by their ids.
func CompareKeys(a, b string) int {
	x, y := KeyIDs(a), KeyIDs(b)
	return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]))
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }
