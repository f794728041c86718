package clusterlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"edda"
	"edda/cluster"
	"edda/effects/effecttest"
	"edda/internal/testkit"
	"edda/internal/testkit/natscluster"
)

func TestMain(m *testing.M) { natscluster.Main(m) }

// within bounds what a test waits for. An election of NATS takes 4 to 9 s.
const within = 40 * time.Second

// TestLog shares one cluster among its tests, because the start takes an election.
func TestLog(t *testing.T) {
	c := natscluster.Start(t)
	js := c.Connect(c.URLs())
	for _, test := range []struct {
		name string
		run  func(*testing.T, *natscluster.Cluster, jetstream.JetStream)
	}{
		{"records", testRecords},
		{"parts", testParts},
		{"trim", testTrim},
		{"zombie", testZombie},
		{"lost", testLost},
		{"answers", testLostAnswers},
		{"slow", testSlowLink},
		{"unfit", testUnfit},
		{"unheard", testPullThatNoServerTakes},
		{"quiet", testQuietConsumer},
		{"killed", testKilledLeader},
		{"frozen", testTakeoverWithFrozenLeader},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c, js) })
	}
}

// node is a node that owns a log, or did, with the entries that were acknowledged to it.
type node struct {
	t     *testing.T
	log   *Log
	name  string
	at    cluster.Mark
	acked []string
}

// open opens the log of a test. A server that has just come back counts as absent for some seconds, and
// no stream is created meanwhile.
func open(t *testing.T, js jetstream.JetStream, name string) *node {
	t.Helper()
	n := &node{t: t, name: name}
	said := ""
	testkit.Until(t, within, "the log is open", func() (open bool) {
		var err error
		n.log, err = Open(t.Context(), js, Options{Shard: strings.ReplaceAll(t.Name(), "/", "-")})
		if err != nil && err.Error() != said {
			said = err.Error()
			t.Log(said)
		}
		return err == nil
	})
	return n
}

// take takes the log over.
func (n *node) take() {
	n.t.Helper()
	at, err := cluster.Take(n.t.Context(), n.log, n.at, n.name, 1, func(cluster.Mark, cluster.Record) error { return nil })
	testkit.Must(n.t, err)
	n.at = at
}

func (n *node) append(ctx context.Context, entry string) error {
	at, err := n.log.Append(ctx, n.at, n.at.Next(cluster.Entry, n.name, 1, []byte(entry)))
	if err == nil {
		n.at, n.acked = at, append(n.acked, entry)
	}
	return err
}

// entries reads the log from its beginning.
func (n *node) entries() (entries []string, owners string) {
	n.t.Helper()
	last, err := n.log.End(n.t.Context())
	testkit.Must(n.t, err)
	err = n.log.Read(n.t.Context(), cluster.Mark{}, last.Seq, func(_ cluster.Mark, r cluster.Record) error {
		if r.Kind == cluster.Own {
			owners += r.Node
		} else {
			entries = append(entries, string(r.Entry))
		}
		return nil
	})
	testkit.Must(n.t, err)
	return entries, owners
}

// wantLog fails unless the log has exactly these entries.
func (n *node) wantLog(want []string) {
	n.t.Helper()
	got, _ := n.entries()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			n.t.Fatalf("the log has %d entries, and %d were acknowledged; they differ at entry %d", len(got), len(want), i)
		}
	}
}

func testRecords(t *testing.T, _ *natscluster.Cluster, js jetstream.JetStream) {
	a := open(t, js, "a")
	if last, err := a.log.End(t.Context()); err != nil || last.Seq != 0 {
		t.Fatalf("the end of an empty log is %+v, %v", last, err)
	}
	a.take()
	for i := range 20 {
		testkit.Must(t, a.append(t.Context(), fmt.Sprint("entry ", i)))
	}
	b := open(t, js, "b")
	b.take()
	testkit.Must(t, b.append(t.Context(), ""))
	a.wantLog(append(a.acked, ""))
	if _, owners := a.entries(); owners != "ab" {
		t.Errorf("owners %q", owners)
	}
	if b.at.LSN != 21 || b.at.Epoch != 2 || b.at.Seq != 23 {
		t.Errorf("the log ends at %+v", b.at)
	}
	last, err := b.log.End(t.Context())
	testkit.Must(t, err)
	if m := last.Message; last.Seq != 23 || m.Node != "b" || m.Kind != cluster.Entry || m.Epoch != 2 || m.Level != 1 {
		t.Errorf("the last message is %+v", last)
	}
	_, err = b.log.Append(t.Context(), b.at, a.at.Next(cluster.Entry, "b", 1, nil))
	testkit.WantError(t, err, edda.Permanent, "b writes in epoch 1")
}

func testParts(t *testing.T, _ *natscluster.Cluster, js jetstream.JetStream) {
	a := open(t, js, "a")
	a.take()
	large := strings.Repeat("0123456789abcdef", 3<<20/16)
	testkit.Must(t, a.append(t.Context(), large))
	testkit.Must(t, a.append(t.Context(), "small"))
	if a.at.Seq != 6 { // own, three quarters of a MiB four times, small
		t.Errorf("the log has %d messages", a.at.Seq)
	}

	// An owner that ends within a record leaves parts behind, which are void.
	_, first := cluster.Begin(a.at, a.at.Next(cluster.Entry, "a", 1, []byte(large)), a.log.partBytes())
	_, err := a.log.send(t.Context(), first)
	testkit.Must(t, err)
	b := open(t, js, "b")
	b.take()
	testkit.Must(t, b.append(t.Context(), "after"))
	b.wantLog([]string{large, "small", "after"})
	if err := a.append(t.Context(), "too late"); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("the earlier owner appends: %v", err)
	}
}

func testTrim(t *testing.T, _ *natscluster.Cluster, js jetstream.JetStream) {
	a := open(t, js, "a")
	a.take()
	var marks []cluster.Mark
	for i := range 5 {
		testkit.Must(t, a.append(t.Context(), fmt.Sprint(i)))
		marks = append(marks, a.at)
	}
	testkit.Must(t, a.log.Trim(t.Context(), marks[2]))
	ignore := func(cluster.Mark, cluster.Record) error { return nil }
	testkit.Until(t, within, "what is trimmed is not read", func() bool { // a server that follows may have it for a second
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return errors.Is(a.log.Read(ctx, marks[0], cluster.Forever, ignore), cluster.ErrTrimmed)
	})
	var got []string
	testkit.Must(t, a.log.Read(t.Context(), marks[2], a.at.Seq, func(_ cluster.Mark, r cluster.Record) error {
		got = append(got, string(r.Entry))
		return nil
	}))
	if strings.Join(got, " ") != "3 4" {
		t.Errorf("read %q", got)
	}
	testkit.Must(t, a.log.Trim(t.Context(), a.at))
	testkit.Must(t, a.append(t.Context(), "next"))
	b := open(t, js, "b")
	b.at = marks[4]
	b.take()
	if b.at.LSN != 6 || b.at.Epoch != 2 {
		t.Errorf("taken over at %+v", b.at)
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	err := b.log.Read(ctx, marks[4], cluster.Forever, func(cluster.Mark, cluster.Record) error { return enough })
	if !errors.Is(err, enough) {
		t.Errorf("an error of visit is %v", err)
	}
}

// testZombie lets an owner go on that does not know of its successor.
func testZombie(t *testing.T, _ *natscluster.Cluster, js jetstream.JetStream) {
	zombie, heir := open(t, js, "zombie"), open(t, js, "heir")
	zombie.take()
	testkit.Must(t, zombie.append(t.Context(), "mine"))
	heir.take()
	testkit.Must(t, heir.append(t.Context(), "first"))
	for i := range 16 {
		if err := zombie.append(t.Context(), fmt.Sprint("late ", i)); !errors.Is(err, cluster.ErrFenced) {
			t.Fatalf("append %d of a fenced owner: %v", i, err)
		}
		testkit.Must(t, heir.append(t.Context(), fmt.Sprint("next ", i)))
	}
	heir.wantLog(append([]string{"mine"}, heir.acked...))
}

// testLost: a node says that a log was deleted and made anew, and keeps waiting for what it was.
func testLost(t *testing.T, _ *natscluster.Cluster, js jetstream.JetStream) {
	n := open(t, js, "a")
	n.take()
	testkit.Must(t, n.append(t.Context(), "one"))
	said := make(chan error, 2)
	n.log.lost = func(why error) { said <- why }
	ahead := n.at
	ahead.Seq++ // as if the leader did not know the last message yet
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := n.log.Append(short, ahead, ahead.Next(cluster.Entry, n.name, 1, []byte("two"))); !errors.Is(err, context.DeadlineExceeded) || len(said) > 0 {
		t.Errorf("a log that seems to be shorter: %v", err)
	}
	testkit.Must(t, Remove(t.Context(), js, strings.ReplaceAll(t.Name(), "/", "-")))
	open(t, js, "b") // a node that starts makes it anew
	n.log.lostWithin = time.Second
	bounded, end := context.WithTimeout(t.Context(), within)
	defer end()
	waiting, stop := context.WithCancelCause(bounded)
	go func() {
		select {
		case why := <-said:
			testkit.WantError(t, why, nil, "has lost messages", "at message 0")
			stop(errors.New("the operator stops it"))
		case <-bounded.Done():
			said <- errors.New("nothing was said")
		}
	}()
	err := n.append(waiting, "three")
	if err == nil || errors.Is(err, cluster.ErrMoved) || !strings.Contains(err.Error(), "the operator stops it") {
		t.Errorf("a log that was made anew: %v", err)
	}
	select {
	case why := <-said:
		testkit.Must(t, why)
	case <-bounded.Done():
		t.Error("the end of the loss was not said")
	}
}

// testLostAnswers cuts the answers to an owner: what it sends is stored, and it does not know.
func testLostAnswers(t *testing.T, c *natscluster.Cluster, js jetstream.JetStream) {
	heir := open(t, js, "heir")
	link := effecttest.NewFaults(t, c.Addr("n2"))
	zombie := open(t, c.Connect("nats://"+link.Address()), "zombie")
	zombie.take()
	testkit.Must(t, zombie.append(t.Context(), "before"))

	link.NoAnswers()
	answered := make(chan error, 1)
	go func() { answered <- zombie.append(t.Context(), "unsure") }()
	stored := func(lsn uint64) func() bool {
		return func() bool {
			last, err := heir.log.End(t.Context())
			return err == nil && last.Message.LSN == lsn
		}
	}
	testkit.Until(t, within, "the record is stored", stored(2))
	link.Down() // a connection without answers ends by its pings, some time later
	link.None()
	link.Up()
	testkit.Must(t, <-answered)
	heir.wantLog([]string{"before", "unsure"})

	link.NoAnswers()
	ctx, cancel := context.WithTimeout(t.Context(), ackWithin+100*time.Millisecond)
	defer cancel()
	err := zombie.append(ctx, "nobody knows")
	testkit.WantError(t, err, context.DeadlineExceeded, "append record 3 of epoch 1", "unknown whether the record is")
	testkit.Until(t, within, "the record is stored", stored(3))
	heir.take()
	link.Down()
	link.None()
	link.Up()
	if err := zombie.append(t.Context(), "late"); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("append of a fenced owner: %v", err)
	}
	heir.wantLog([]string{"before", "unsure", "nobody knows"})
}

// testSlowLink has a round trip longer than the wait for an acknowledgement.
func testSlowLink(t *testing.T, c *natscluster.Cluster, js jetstream.JetStream) {
	link := effecttest.NewFaults(t, c.Addr("n1"))
	a := open(t, c.Connect("nats://"+link.Address()), "a")
	a.take()
	link.SlowAnswers(ackWithin + 100*time.Millisecond)
	for i := range 2 {
		testkit.Must(t, a.append(t.Context(), fmt.Sprint(i)))
	}
	open(t, js, "b").wantLog(a.acked)
}

// testKilledLeader kills the server that leads the log while an owner appends and a standby follows.
// The owner stays the owner.
func testKilledLeader(t *testing.T, c *natscluster.Cluster, js jetstream.JetStream) {
	a := open(t, js, "a")
	a.take()
	stream := a.log.name
	leader := c.Leader(js, stream)
	standby := open(t, c.Connect(c.Others(leader)), "standby")
	follower := &follower{}
	stop := follower.follow(t, standby.log)

	var appended atomic.Int64
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			entry := fmt.Sprintf("%d %s", len(a.acked), strings.Repeat("x", 2000))
			if err := a.append(t.Context(), entry); err != nil {
				t.Errorf("the owner ends: %v", err)
				return
			}
			appended.Add(1)
		}
	}()
	more := func(what string) {
		t.Helper()
		from := appended.Load()
		testkit.Until(t, within, "appends "+what, func() bool { return appended.Load() >= from+50 })
	}
	more("before the loss")
	c.Kill(leader)
	began := time.Now()
	lost := appended.Load()
	testkit.Until(t, within, "an append without the leader", func() bool { return appended.Load() > lost+1 })
	t.Logf("%d records before the loss of the leader; the next after %v", lost, time.Since(began).Round(time.Millisecond))
	more("without the leader")
	c.Restart(leader)
	c.AwaitReplicas(js, stream)
	more("with all servers")
	cancel()
	<-ended

	standby.wantLog(a.acked)
	testkit.Until(t, within, "the standby reads to the end", func() bool {
		return follower.read.Load() == int64(len(a.acked))
	})
	stop()
	if strings.Join(follower.entries, "\n") != strings.Join(a.acked, "\n") {
		t.Error("the standby has read other entries than the owner has appended")
	}
	if _, owners := standby.entries(); owners != "a" {
		t.Errorf("the election of a leader has changed the owner: %q", owners)
	}
}

// busyRecords are what the owner appends at most before another node has taken over: an owner that never
// pauses between two appends can keep others out.
const busyRecords = 200

// testTakeoverWithFrozenLeader lets a node take over from a living owner while the server that leads
// the log is frozen. The server wakes up as a deposed leader.
func testTakeoverWithFrozenLeader(t *testing.T, c *natscluster.Cluster, js jetstream.JetStream) {
	zombie := open(t, js, "zombie")
	c.AwaitReplicas(js, zombie.log.name)
	zombie.take()
	leader := c.Leader(js, zombie.log.name)
	heir := open(t, c.Connect(c.Others(leader)), "heir")
	ended := make(chan error)
	taken := make(chan struct{})
	var appended atomic.Int64
	go func() {
		for {
			if appended.Load() == busyRecords {
				<-taken
			}
			if err := zombie.append(t.Context(), fmt.Sprint("old ", len(zombie.acked))); err != nil {
				ended <- err
				return
			}
			appended.Add(1)
		}
	}()
	testkit.Until(t, within, "appends of the owner", func() bool { return appended.Load() > 50 })
	c.Freeze(leader)
	heir.take()
	close(taken)
	c.Thaw(leader)
	for range 20 {
		testkit.Must(t, heir.append(t.Context(), "new"))
	}
	if err := <-ended; !errors.Is(err, cluster.ErrFenced) && !errors.Is(err, cluster.ErrMoved) {
		t.Errorf("the earlier owner ends with %v", err)
	}
	c.AwaitReplicas(js, heir.log.name)
	got, owners := heir.entries()
	old := len(got) - len(heir.acked)
	if n := old - len(zombie.acked); owners != "zombieheir" || n != 0 && n != 1 {
		t.Fatalf("owners %q; %d and %d entries were acknowledged, and the log has %d",
			owners, len(zombie.acked), len(heir.acked), len(got))
	}
	acked := zombie.acked
	if old > len(acked) { // the last append of the earlier owner is in the log, unacknowledged
		acked = append(acked, fmt.Sprint("old ", len(acked)))
	}
	heir.wantLog(append(acked, heir.acked...))
}

// follower collects what a reader follows.
type follower struct {
	entries []string
	read    atomic.Int64
}

func (f *follower) follow(t *testing.T, log *Log) (stop func()) {
	return testkit.Run(t, func(ctx context.Context) error {
		err := log.Read(ctx, cluster.Mark{}, cluster.Forever, func(_ cluster.Mark, r cluster.Record) error {
			if r.Kind == cluster.Entry {
				f.entries = append(f.entries, string(r.Entry))
				f.read.Add(1)
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
}

func testUnfit(t *testing.T, _ *natscluster.Cluster, js jetstream.JetStream) {
	good := jetstream.StreamConfig{Replicas: 3, DenyDelete: true}
	tests := []struct {
		name   string
		change func(*jetstream.StreamConfig)
		word   string
	}{
		{"replicas", func(c *jetstream.StreamConfig) { c.Replicas = 1 }, "nats stream edit EDDA_LOG_replicas --replicas=3"},
		{"deletes", func(c *jetstream.StreamConfig) { c.DenyDelete = false }, "delete single messages"},
		{"purge", func(c *jetstream.StreamConfig) { c.DenyPurge = true }, "denies to purge"},
		{"direct", func(c *jetstream.StreamConfig) { c.AllowDirect = true }, "replicas that lag"},
		{"memory", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "stored in files"},
		{"age", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "removes messages by itself"},
		{"subject", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "other") }, "not edda.log.subject"},
	}
	for _, tt := range tests {
		cfg := good
		cfg.Name, cfg.Subjects = "EDDA_LOG_"+tt.name, []string{"edda.log." + tt.name}
		tt.change(&cfg)
		_, err := js.CreateStream(t.Context(), cfg)
		testkit.Must(t, err)
		_, err = Open(t.Context(), js, Options{Shard: tt.name})
		testkit.WantError(t, err, edda.Permanent, "EDDA_LOG_"+tt.name, tt.word)
		if tt.name == "replicas" {
			_, err = Open(t.Context(), js, Options{Shard: tt.name, Replicas: 1})
			testkit.Must(t, err)
		}
		testkit.Must(t, js.DeleteStream(t.Context(), cfg.Name))
	}
	_, err := Open(t.Context(), js, Options{Shard: "a.b"})
	testkit.WantError(t, err, edda.Permanent, "letters, digits")

	log, err := Open(t.Context(), js, Options{Shard: "gone"})
	testkit.Must(t, err)
	testkit.Must(t, js.DeleteStream(t.Context(), log.name))
	_, err = log.Append(t.Context(), cluster.Mark{}, cluster.Mark{}.Own("a", 1))
	testkit.WantError(t, err, edda.Permanent, "stream not found")
}

// firstLost is a stream whose first consumer is lost before its first pull.
type firstLost struct {
	jetstream.Stream
	made chan time.Time
}

func (s firstLost) CreateConsumer(ctx context.Context, o jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	cons, err := s.Stream.CreateConsumer(ctx, o)
	if err == nil && len(s.made) == 0 {
		err = s.DeleteConsumer(ctx, cons.CachedInfo().Name)
	}
	s.made <- time.Now()
	return cons, err
}

// testPullThatNoServerTakes: the reader makes another consumer at once. It does not wait for heartbeats, and does not read
// one message after the other from the leader meanwhile.
func testPullThatNoServerTakes(t *testing.T, _ *natscluster.Cluster, js jetstream.JetStream) {
	n := open(t, js, "a")
	n.take()
	for i := range 3 * fewMessages {
		testkit.Must(t, n.append(t.Context(), fmt.Sprint(i)))
	}
	reader, made := open(t, js, "b"), make(chan time.Time, 10)
	reader.log.stream = firstLost{reader.log.stream, made}
	testkit.Must(t, reader.log.Read(t.Context(), cluster.Mark{}, n.at.Seq, func(cluster.Mark, cluster.Record) error { return nil }))
	if len(made) < 2 {
		t.Fatal("the reader made one consumer")
	}
	if first, second := <-made, <-made; second.Sub(first) > pullHeartbeat {
		t.Errorf("the second consumer came after %s", second.Sub(first))
	}
}

// testQuietConsumer freezes the server of a reader's consumer, which is not the leader's: the reader has the next record
// from the leader, before it gives the consumer up.
func testQuietConsumer(t *testing.T, c *natscluster.Cluster, js jetstream.JetStream) {
	n := open(t, js, "a")
	n.take()
	name := n.log.name
	c.AwaitReplicas(js, name)
	s, err := js.Stream(t.Context(), name)
	testkit.Must(t, err)
	leader := c.Leader(js, name)
	near := c.Connect(c.URL(leader))
	owner, reader := open(t, near, "a"), open(t, near, "b")
	owner.at = n.at
	for tries := 0; ; tries++ {
		if tries == 30 {
			t.Fatal("no consumer is on another server than the leader")
		}
		ctx, cancel := context.WithCancel(t.Context())
		read, ended := make(chan string, 100), make(chan error, 1)
		go func() {
			ended <- reader.log.Read(ctx, cluster.Mark{}, cluster.Forever, func(_ cluster.Mark, r cluster.Record) error {
				read <- string(r.Entry)
				return nil
			})
		}()
		<-read // the consumer works
		host := ""
		for info := range s.ListConsumers(t.Context()).Info() {
			host = info.Cluster.Leader
		}
		if host == leader || host == "" {
			cancel()
			<-ended
			continue
		}
		for len(read) > 0 {
			<-read
		}
		c.Freeze(host)
		t.Cleanup(func() { c.Thaw(host) })
		begin := time.Now()
		testkit.Must(t, owner.append(t.Context(), "the last"))
		for got := ""; got != "the last"; {
			select {
			case got = <-read:
			case <-time.After(within):
				t.Fatal("the record does not come")
			}
		}
		took := time.Since(begin)
		cancel()
		<-ended
		if took > 2*pullHeartbeat {
			t.Errorf("the record comes after %s, when the consumer is given up", took)
		}
		return
	}
}
