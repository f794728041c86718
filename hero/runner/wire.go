package runner

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	"edda/hero"
	"edda/hero/script"
)

// remoteID names a job that came by the topic.
type remoteID struct{ context, caller, id hero.WireID }

func idOf(j hero.WireJob) remoteID { return remoteID{j.ContextID, j.CallerID, j.ID} }

func (id remoteID) key() string { return "job:" + string(id.caller) + ":" + string(id.id) }

// executorOf is the type of the job's script, which either of two fields may say.
func executorOf(j hero.WireJob) string { return strings.ToLower(cmp.Or(j.Executor, j.Runner)) }

// same tells whether two are the same work.
func same(j, k hero.WireJob) bool {
	return j.Payload == k.Payload && j.Executor == k.Executor && j.Timeout == k.Timeout && maps.Equal(j.EnvVars, k.EnvVars)
}

func scriptOf(j hero.WireJob, runner uint32) script.Script {
	return script.Script{ID: idOf(j).key(), Type: j.Executor, Source: j.Payload, Env: j.EnvVars, Context: string(j.ContextID),
		Timeout: time.Duration(j.Timeout) * time.Second, Who: fmt.Sprintf("actor %s by runner%d", j.CallerID, runner)}
}

func lines(all string) []string {
	if all == "" {
		return []string{}
	}
	return strings.Split(strings.TrimSuffix(all, "\n"), "\n")
}
