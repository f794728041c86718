package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"edda/hero"
	"edda/hero/redisdb"
	"edda/internal/testkit"
)

// pushed queues a job in context 7, as the supervisor and the router do.
func pushed(t *testing.T, db *redisdb.DB, id uint32, p hero.Priority) {
	t.Helper()
	j := hero.Job{ID: id, CallerID: 12, ContextID: 7, Script: "x", ScriptType: hero.ScriptPython, Priority: p}
	if v, err := Enqueue(t.Context(), db, j, "queue:python", time.Time{}); v != Queued || err != nil {
		t.Fatal(v, err)
	}
}

// pops takes the jobs as a foreign runner does, with BRPOP.
func pops(t *testing.T, c *redis.Client, n int) string {
	t.Helper()
	var out []string
	for range n {
		key, err := c.RPop(t.Context(), "queue:python").Result()
		testkit.Must(t, err)
		out = append(out, strings.TrimPrefix(key, "job:12:"))
	}
	return strings.Join(out, " ")
}

func priorityWorld(t *testing.T) (*redisdb.DB, *redis.Client) {
	t.Helper()
	db := emptyDB(t)
	testkit.Must(t, db.PutContext(t.Context(), hero.Context{ID: 7, Admins: []uint32{12}}))
	c, err := db.Client(7)
	testkit.Must(t, err)
	return db, c
}

// A job of high priority waits only behind others of high priority, even for a runner that
// does not know priorities. The same job is queued once.
func TestAJobOfHighPriorityWaitsBehindAllOthers(t *testing.T) {
	db, c := priorityWorld(t)
	for id := range uint32(5) {
		pushed(t, db, 1+id, hero.PriorityNormal)
	}
	pushed(t, db, 101, hero.PriorityHigh)
	pushed(t, db, 102, hero.PriorityHigh)
	if v, err := Enqueue(t.Context(), db, hero.Job{ID: 102, CallerID: 12, ContextID: 7, Script: "x", ScriptType: hero.ScriptPython, Priority: hero.PriorityHigh}, "queue:python", time.Time{}); v != Known || err != nil {
		t.Error(v, err)
	}
	pushed(t, db, 6, hero.PriorityNormal)
	if got := pops(t, c, 8); got != "101 102 1 2 3 4 5 6" {
		t.Error(got)
	}
	pushed(t, db, 103, hero.PriorityHigh) // into an empty queue
	pushed(t, db, 104, hero.PriorityHigh)
	if got := pops(t, c, 2); got != "103 104" {
		t.Error(got)
	}
}

// At most ten jobs of high priority overtake a waiting job, even if they keep coming.
func TestAJobOfTheUsualPriorityWaitsForEver(t *testing.T) {
	db, c := priorityWorld(t)
	for id := range uint32(3) {
		pushed(t, db, 1+id, hero.PriorityNormal)
	}
	next := uint32(100)
	high := func() { pushed(t, db, next, hero.PriorityHigh); next++ }
	var order []string
	for range 40 { // push one for each that is taken
		high()
		order = append(order, pops(t, c, 1))
	}
	for i, id := range []string{"1", "2", "3"} {
		if at := slices.Index(order, id); at != 10+11*i {
			t.Errorf("job %s is taken after %d others: %v", id, at, order)
		}
	}
	testkit.Must(t, c.Del(t.Context(), "queue:python").Err())
	for id := range uint32(3) {
		pushed(t, db, 11+id, hero.PriorityNormal)
	}
	for range 25 { // all at once
		high()
	}
	order = strings.Fields(pops(t, c, 28))
	for i, id := range []string{"11", "12", "13"} {
		if at := slices.Index(order, id); at != min(10+11*i, 27) {
			t.Errorf("job %s is taken after %d others: %v", id, at, order)
		}
	}
	if high := slices.DeleteFunc(order, func(id string) bool { return len(id) == 2 }); !slices.IsSorted(high) {
		t.Errorf("those of high priority are not in their order: %v", high)
	}
}

// A key in a queue that is no job loses no job, and gets no hash.
func TestAKeyThatIsNoJobIsInTheWayOfPriorities(t *testing.T) {
	db, c := priorityWorld(t)
	testkit.Must(t, c.LPush(t.Context(), "queue:python", "nothing", "context:7", "msg_in").Err())
	if err := c.LPush(t.Context(), "msg_in", "x").Err(); err != nil { // a list, not a hash
		t.Fatal(err)
	}
	pushed(t, db, 101, hero.PriorityHigh)
	if got := pops(t, c, 4); got != "101 nothing context:7 msg_in" {
		t.Error(got)
	}
	if n := c.Exists(t.Context(), "nothing").Val(); n != 0 {
		t.Error("a hash was made of nothing")
	}
}

// Many jobs of high priority in a long queue keep their order, at a bounded cost, and none is
// lost.
func TestAThousandJobsOfHighPriorityBlockRedis(t *testing.T) {
	db, c := priorityWorld(t)
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 20_000 {
			p.LPush(t.Context(), "queue:python", fmt.Sprint("job:12:", 50_000+i))
		}
		return nil
	})
	testkit.Must(t, err)
	for id := range uint32(1200) {
		pushed(t, db, 1+id, hero.PriorityHigh)
	}
	var last, overtook int
	got := strings.Fields(pops(t, c, 21_200))
	seen := map[string]bool{}
	for i, id := range got {
		seen[id] = true
		var n int
		if _, err := fmt.Sscan(id, &n); err != nil {
			t.Fatal(err)
		}
		if n > 1200 {
			continue
		}
		if n < last {
			t.Fatalf("%d is taken behind %d", n, last)
		}
		if last = n; i < 1200 {
			overtook++
		}
	}
	if len(seen) != 21_200 || overtook < 450 {
		t.Errorf("%d keys, %d of high priority among the first", len(seen), overtook)
	}
	slow, err := c.Info(t.Context(), "commandstats").Result()
	testkit.Must(t, err)
	for line := range strings.Lines(slow) {
		if strings.HasPrefix(line, "cmdstat_evalsha:") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

func TestAPriorityOfOtherProgramsMakesAJobUnreadable(t *testing.T) {
	db, c := priorityWorld(t)
	testkit.Must(t, c.HSet(t.Context(), "job:12:1", "id", 1, "caller_id", 12, "script", "x", "script_type", "python", "priority", "5").Err())
	if j, err := db.Job(t.Context(), 7, 12, 1); err != nil || j.Priority != hero.PriorityNormal {
		t.Errorf("%+v, %v", j, err)
	}
	if _, err := ToHero(Job{ID: "1", CallerID: "12", ContextID: "7", Payload: "x", Executor: "python", Priority: "5"}); err == nil || !strings.Contains(err.Error(), "job.priority") {
		t.Errorf("%v", err)
	}
}
