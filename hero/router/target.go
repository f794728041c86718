package router

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"edda/hero"
	"edda/hero/mycelium"
)

// way is the transport to a target.
type way int

const (
	byQueue way = iota // the queue of local jobs of the job's type
	byHTTP
	byMycelium
)

// target is the queue or supervisor that gets a job.
type target struct {
	way    way
	name   string // in the message's hash: runner:<id>, or the node's URL
	runner uint32 // 0 for a URL that no runner of the context has
	url    string
	to     mycelium.Peer
	topic  string
	secret string
}

const runnerName = "runner:"

// byURL makes the target of a node's supervisor_url. Secret and topic are those of the
// context's runner with that address.
func byURL(raw string, runners []hero.Runner) (target, error) {
	t := target{name: raw}
	if isHTTP(raw) {
		t.way, t.url = byHTTP, raw
		if r, ok := find(runners, func(r hero.Runner) bool { return sameURL(r.Address, raw) }); ok {
			t.runner, t.secret = r.ID, r.Secret
		}
		return t, nil
	}
	to, topic, err := mycelium.ParseDestination(raw)
	if err != nil {
		return target{}, fmt.Errorf("supervisor_url %.80q: %w", raw, err)
	}
	t.way, t.to, t.topic = byMycelium, to, topic
	r, ok := find(runners, func(r hero.Runner) bool { return listensAt(r, to) })
	if ok {
		t.runner, t.secret = r.ID, r.Secret
	}
	if t.topic == "" {
		t.topic = cmp.Or(r.Topic, hero.SupervisorTopic)
	}
	return t, nil
}

// byRunner makes the target of a runner of the context. A local runner takes jobs from the
// queue, unless it is a supervisor. Any other is reached by its public key, or by its
// address if it has none.
func byRunner(r hero.Runner) (target, error) {
	t := target{name: runnerName + strconv.FormatUint(uint64(r.ID), 10), runner: r.ID, secret: r.Secret, topic: r.Listens()}
	switch {
	case r.Local && !r.Supervisor():
		t.way = byQueue
	case isKey(r.PubKey):
		t.way, t.to = byMycelium, mycelium.Peer{PK: strings.ToLower(r.PubKey)}
	case isHTTP(r.Address):
		t.way, t.url = byHTTP, r.Address
	case r.Address != "":
		to, topic, err := mycelium.ParseDestination(r.Address)
		if err != nil {
			return target{}, fmt.Errorf("runner %d: address %.80q: %w", r.ID, r.Address, err)
		}
		t.way, t.to = byMycelium, to
		if r.Topic == "" && topic != "" {
			t.topic = topic
		}
	case r.Local:
		t.way = byQueue
	default:
		return target{}, fmt.Errorf("runner %d has no pubkey of 64 hexadecimal digits, no address, and is not local: give it one", r.ID)
	}
	return t, nil
}

// earlierTarget makes the target of an earlier attempt.
func earlierTarget(name string, runners []hero.Runner) (target, error) {
	if id, ok := strings.CutPrefix(name, runnerName); ok {
		r, ok := find(runners, func(r hero.Runner) bool { return strconv.FormatUint(uint64(r.ID), 10) == id })
		if !ok {
			return target{}, fmt.Errorf("runner %s, which the job was sent to, is gone", id)
		}
		return byRunner(r)
	}
	return byURL(name, runners)
}

// pick chooses a runner by its topic: one that names the job's script type or executor, else
// one that names no type at all. It picks a dead one only if all are dead. Runners that fit
// equally take turns by id; picked is the number of earlier picks.
func pick(j hero.Job, runners []hero.Runner, dead func(uint32) bool, picked uint64) (hero.Runner, bool) {
	fit := fitting(j, runners)
	if alive := slices.DeleteFunc(slices.Clone(fit), func(r hero.Runner) bool { return dead(r.ID) }); len(alive) > 0 {
		fit = alive
	}
	if len(fit) == 0 {
		return hero.Runner{}, false
	}
	slices.SortFunc(fit, func(a, b hero.Runner) int { return cmp.Compare(a.ID, b.ID) })
	return fit[picked%uint64(len(fit))], true
}

func fitting(j hero.Job, runners []hero.Runner) []hero.Runner {
	want := []string{strings.ToLower(string(j.ScriptType)), strings.ToLower(j.Executor)}
	var named, open []hero.Runner
	for _, r := range runners {
		words := hints(r.Topic)
		switch {
		case slices.ContainsFunc(words, func(w string) bool { return slices.Contains(want, w) }):
			named = append(named, r)
		case !slices.ContainsFunc(words, isType):
			open = append(open, r)
		}
	}
	if len(named) > 0 {
		return named
	}
	return open
}

// hints returns the words of a topic: runner.python-2 names python.
func hints(topic string) []string {
	return strings.FieldsFunc(strings.ToLower(topic), func(c rune) bool { return !unicode.IsLetter(c) })
}

// isType reports whether a word of a topic names a runtime of the documents.
func isType(word string) bool {
	switch hero.ScriptType(word) {
	case hero.ScriptOSIS, hero.ScriptSAL, hero.ScriptV, hero.ScriptPython, "rust", "rhai", "bash":
		return true
	}
	return false
}

// isKey reports whether the text is a public key of Mycelium.
func isKey(s string) bool {
	to, _, err := mycelium.ParseDestination(s)
	return err == nil && to.PK != ""
}

func listensAt(r hero.Runner, to mycelium.Peer) bool {
	if to.PK != "" && strings.EqualFold(r.PubKey, to.PK) {
		return true
	}
	if r.Address == "" || isHTTP(r.Address) {
		return false
	}
	at, _, err := mycelium.ParseDestination(r.Address)
	return err == nil && at == to
}

func find(runners []hero.Runner, is func(hero.Runner) bool) (hero.Runner, bool) {
	i := slices.IndexFunc(runners, is)
	if i < 0 {
		return hero.Runner{}, false
	}
	return runners[i], true
}

func isHTTP(s string) bool {
	return strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")
}

func sameURL(a, b string) bool {
	return strings.TrimRight(a, "/") == strings.TrimRight(b, "/")
}
