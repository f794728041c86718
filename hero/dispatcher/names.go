package dispatcher

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"edda"
)

// Scheme selects the names of the queues.
type Scheme string

// The schemes of names.
const (
	SchemeProtocol Scheme = "protocol" // hero:work_queue:<worker>, hero:reply:<job>
	SchemeUnified  Scheme = "unified"  // hero:q:work:type:<worker>, hero:q:reply:<job>
)

// Schemes lists the schemes, the default first.
func Schemes() []string { return []string{string(SchemeProtocol), string(SchemeUnified)} }

// Order is the order in which a worker takes jobs. Clients always LPUSH.
type Order string

// The orders.
const (
	FIFO Order = "fifo" // BRPOP: the oldest first
	LIFO Order = "lifo" // BLPOP, as in the document's text: the newest first
)

// Orders lists the orders, the default first.
func Orders() []string { return []string{string(FIFO), string(LIFO)} }

// The keys that do not depend on the scheme.
const (
	jobPrefix    = "hero:job:"
	stopPrefix   = "hero:stop_queue:"
	workerPrefix = "hero:worker:"
	takenPrefix  = "hero:taken:"
	workersKey   = "hero:workers"
	waitingKey   = "hero:waiting"
)

// JobKey names the hash of a job.
func JobKey(id string) string { return jobPrefix + id }

// StopQueue names the list of requests to stop jobs of a worker.
func StopQueue(worker string) string { return stopPrefix + worker }

func (s Scheme) work() string {
	if s == SchemeUnified {
		return "hero:q:work:type:"
	}
	return "hero:work_queue:"
}

func (s Scheme) reply() string {
	if s == SchemeUnified {
		return "hero:q:reply:"
	}
	return "hero:reply:"
}

// WorkQueue names the list that a worker takes jobs from.
func (s Scheme) WorkQueue(worker string) string { return s.work() + worker }

// ReplyQueue names the list that receives a job's result.
func (s Scheme) ReplyQueue(job string) string { return s.reply() + job }

// oneOf checks the value of a setting against its words. The first word is the default.
func oneOf[W ~string](what string, w W, words []string) (W, error) {
	if w == "" {
		return W(words[0]), nil
	}
	if !slices.Contains(words, string(w)) {
		return "", edda.Classify(edda.Permanent, "%s %q: want one of %s", what, w, strings.Join(words, ", "))
	}
	return w, nil
}

// maxID bounds the ids of jobs and workers, which become parts of keys.
const maxID = 200

// checkID refuses an id that makes a key unreadable.
func checkID(what, id string) error {
	bad := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	switch {
	case id == "":
		return edda.Classify(edda.Permanent, "%s is missing", what)
	case len(id) > maxID:
		return edda.Classify(edda.Permanent, "%s has %d bytes: at most %d", what, len(id), maxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, bad):
		return edda.Classify(edda.Permanent, "%s %q: no spaces or control characters, please", what, id)
	}
	return nil
}

// bounded shortens a text of another program for errors and logs.
func bounded(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(s[:most], ""), len(s))
}
