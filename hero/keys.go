package hero

import (
	"fmt"
	"strconv"
	"strings"
)

// ActorKey names an actor's hash.
func ActorKey(id uint32) string { return key("actor", id) }

// ContextKey names a context's hash.
func ContextKey(id uint32) string { return key("context", id) }

// FlowKey names a flow's hash.
func FlowKey(id uint32) string { return key("flow", id) }

// RunnerKey names a runner's hash.
func RunnerKey(id uint32) string { return key("runner", id) }

// RunnerAliveKey is there, with an expiry, as long as the runner lives.
func RunnerAliveKey(id uint32) string { return RunnerKey(id) + ":alive" }

// JobKey names a job's hash.
func JobKey(caller, id uint32) string { return key("job", caller, id) }

// JobCallersKey names the set of the callers that have a job of that id in a
// context, so that one whose caller is not said can be found.
func JobCallersKey(id uint32) string { return "edda:" + key("job_callers", id) }

// MessageKey names a message's hash.
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
	if !ok || len(ids) != 2 {
		return 0, 0, fmt.Errorf("%q is no key of a %s: want %s:<caller_id>:<id>", s, kind, kind)
	}
	return ids[0], ids[1], nil
}

// parseKey reads the ids of a key of that kind. Foreign keys of the same prefix
// (flow:stats, context:7:lock) are not ours.
func parseKey(kind, s string) ([]uint32, bool) {
	rest, ok := strings.CutPrefix(s, kind+":")
	if !ok {
		return nil, false
	}
	var ids []uint32
	for _, part := range strings.Split(rest, ":") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || key(kind, uint32(n)) != kind+":"+part {
			return nil, false
		}
		ids = append(ids, uint32(n))
	}
	return ids, true
}

func isURL(s string) bool { return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://") }

// IsActorKey, and likewise the others, tell a key of the documents from another
// program's with the same beginning.
func IsActorKey(s string) bool { return isKey("actor", s, 1) }

// IsFlowKey tells whether it is flow:<id>.
func IsFlowKey(s string) bool { return isKey("flow", s, 1) }

// IsRunnerKey tells whether it is runner:<id>.
func IsRunnerKey(s string) bool { return isKey("runner", s, 1) }

// IsJobKey tells whether it is job:<caller>:<id>.
func IsJobKey(s string) bool { return isKey("job", s, 2) }

// IsMessageKey tells whether it is message:<caller>:<id>.
func IsMessageKey(s string) bool { return isKey("message", s, 2) }

func isKey(kind, s string, ids int) bool {
	found, ok := parseKey(kind, s)
	return ok && len(found) == ids
}
