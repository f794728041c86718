//go:build !race

package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/hero"
	"edda/internal/realservers"
)

// dependentsEnd bounds what two releases of jobs take that nobody of ours was told of: a
// router looks for them in rounds, twice each.
const dependentsEnd = 4 * time.Minute

// TestDependentsAreReleasedInEveryPairing has a chain of three jobs run, the last one asked
// for first, by clients and workers of ours and of the stranger, in a flow and outside.
func TestDependentsAreReleasedInEveryPairing(t *testing.T) {
	h := newHeroWorld(t, realservers.RedisOptions{})
	h.coordinator()
	h.runner(nil)
	in := uint32(3)
	for _, client := range []string{"our client", "the stranger's client"} {
		for _, worker := range []string{"our worker", "the stranger's worker"} {
			for _, where := range []string{"in a flow", "outside"} {
				in++
				context := in
				t.Run(client+", "+worker+", "+where, func(t *testing.T) {
					t.Parallel()
					world := *h
					world.t = t
					p := &pairing{heroWorld: &world, in: context, order: filepath.Join(t.TempDir(), "order")}
					p.stranger = &strange{h: &world, t: t, api: "http://" + h.api}
					p.r = p.stranger.redis(int(context))
					if worker == "our worker" {
						p.place(context, hero.Runner{ID: ourRunner, Local: true})
					} else {
						p.place(context, hero.Runner{ID: theirRunner, Local: true})
						p.serves()
					}
					map[string]func(){
						"our client, in a flow": p.oursInAFlow, "our client, outside": p.oursOutside,
						"the stranger's client, in a flow": p.theirsInAFlow, "the stranger's client, outside": p.theirsOutside,
					}[client+", "+where]()
					p.ran()
				})
			}
		}
	}
	t.Run("the dispatcher's client and the stranger's worker", func(t *testing.T) {
		t.Parallel()
		world := *h
		world.t = t
		world.dispatchesInOrder()
	})
}

// A pairing is a client and a worker in a context of their own.
type pairing struct {
	*heroWorld
	in       uint32
	order    string // the file that the jobs write their ids to
	stranger *strange
	r        *strangerRedis
}

func (p *pairing) script(id uint32) string {
	return fmt.Sprintf("open(%q, 'a').write('%d\\n')", p.order, id)
}

// chain is a job for each step, the last first: each waits for the one before it.
func (p *pairing) chain(each func(id uint32, after []uint32)) {
	each(3, []uint32{2})
	each(2, []uint32{1})
	each(1, []uint32{})
}

func (p *pairing) oursInAFlow() {
	var steps []step
	p.chain(func(id uint32, after []uint32) {
		steps = append(steps, step{id: id, script: p.script(id), after: after})
	})
	p.flow(p.in, 33, steps...)
}

func (p *pairing) oursOutside() {
	jobs := []object{}
	p.chain(func(id uint32, after []uint32) {
		jobs = append(jobs, object{"id": id, "caller_id": heroActor, "context_id": p.in, "script": p.script(id), "script_type": "python", "timeout": 60, "dependends": after})
	})
	var ignored json.RawMessage
	p.call("message.create", object{"context_id": p.in, "message": object{"id": 101, "caller_id": heroActor, "context_id": p.in, "message": "", "message_type": "job",
		"message_format_type": "text", "timeout": 60, "timeout_ack": 60, "timeout_result": 600, "job": jobs}}, &ignored)
}

func (p *pairing) theirsInAFlow() {
	ids := []uint32{}
	p.chain(func(id uint32, after []uint32) {
		ids = append(ids, id)
		p.stranger.job(int(p.in), int(id), object{"script": p.script(id), "dependends": after})
	})
	p.stranger.asks("flow.create", object{"context_id": p.in, "flow": object{"id": 33, "caller_id": heroActor, "jobs": ids}})
	var yes bool
	p.stranger.asksFor("flow.start", object{"context_id": p.in, "id": 33}, &yes)
}

// theirsOutside knows nothing but Redis.
func (p *pairing) theirsOutside() {
	p.chain(func(id uint32, after []uint32) {
		p.must(strangerQueues(p.r, heroActor, int(p.in), int(id), p.script(id), after))
	})
}

// serves runs the stranger's worker of the context until the test ends.
func (p *pairing) serves() {
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		r, err := strangerDials(p.redis.Address(), int(p.in))
		for err == nil && ctx.Err() == nil {
			err = strangerServes(r, p.python, "queue:python")
		}
		if err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(func() { stop(); serving.Wait() })
}

// ran wants that each job ran once, after the one that it depends on.
func (p *pairing) ran() {
	p.t.Helper()
	for id := 1; id <= 3; id++ {
		untilIn(p.t, dependentsEnd, fmt.Sprintf("job %d is finished", id), func() bool {
			return p.stranger.hash(p.r, fmt.Sprintf("job:%d:%d", heroActor, id))["status"] == "finished"
		})
	}
	until(p.t, "nothing is queued", func() bool {
		return p.stranger.do(p.r, "LLEN", "queue:python") == 0 && p.stranger.do(p.r, "ZCARD", "edda:waiting") == 0
	})
	text, err := os.ReadFile(p.order)
	p.must(err)
	if got := strings.Fields(string(text)); fmt.Sprint(got) != "[1 2 3]" {
		p.t.Errorf("ran %v", got)
	}
}

// dispatchesInOrder has the coordinator release what our client left and the stranger's
// worker runs, and a client that waits see its end.
func (h *heroWorld) dispatchesInOrder() {
	r, done := (&strange{h: h, t: h.t}).redis(0), make(chan error, 1)
	edda := func(command string, more ...string) {
		h.t.Helper()
		c := launch(h.t, append([]string{"hero", "job", command, "--redis-addr", h.redis.Address()}, more...)...)
		if code := c.code(); code != 0 {
			h.t.Fatalf("%s: exit code %d: %s%s", command, code, c.out, c.err)
		}
	}
	edda("create", "--worker", "chained", "--id", "chain-1", "--script", "print(1)")
	edda("run", "--detach", "--worker", "chained", "--id", "chain-2", "--after", "chain-1", "--script", "print(2)")
	edda("run", "--detach", "--worker", "chained", "--id", "chain-3", "--after", "chain-2", "--script", "print(3)")
	go func() { done <- strangerWorker(r, h.python, "chained", 3) }()
	edda("submit", "chain-1")
	h.must(<-done)
	for _, id := range []string{"1", "2", "3"} {
		if got, err := r.hash("hero:job:chain-" + id); err != nil || got["status"] != "finished" || got["output"] != id {
			h.t.Errorf("job %s: %v %v", id, got, err)
		}
	}
}
