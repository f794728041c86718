package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"edda/internal/harness"
	"edda/internal/natsservers"
	"edda/store"
)

const (
	// pace is the time from one order to the next: 100 orders a second.
	pace = 10 * time.Millisecond
	// flowFor is how long orders flow before and between the acts.
	flowFor = 2 * time.Second
	// takeoverFor bounds the time without an owner. Leaders of streams may be elected in it.
	takeoverFor = 30 * time.Second
	// lookEvery is how often the nodes are asked who owns the store.
	lookEvery = 20 * time.Millisecond
	// lookFor bounds one such question.
	lookFor = time.Second
)

// clustered is one run of the demo of a cluster.
type clustered struct {
	run
	servers *natsservers.Servers
	nodes   []*demoNode
	owner   *demoNode
	epoch   uint64
	began   time.Time
	sender  *orderFlow
}

// demoNode is a process that is a node of the cluster.
type demoNode struct {
	*harness.Process
	name, api, data string
}

// RunCluster runs the demo of a cluster, in the program that has called [natsservers.Main]. The
// error says where books, sagas and copies disagree. Orders and trips of the options are not used.
func RunCluster(ctx context.Context, o Options) (err error) {
	if o.Edda, err = harness.Binary(o.Edda); err != nil {
		return err
	}
	asked := ctx
	ctx, cancel := context.WithTimeoutCause(ctx, o.Timeout, fmt.Errorf("the demo may take %s", o.Timeout))
	defer cancel()
	r := &clustered{run: run{Options: o}, began: time.Now()}
	r.Orders, r.Trips = 0, 0
	defer func() { err = errors.Join(err, r.stops.Stop()) }()
	err = r.acts(ctx)
	if err != nil && asked.Err() != nil {
		return errors.New("interrupted; everything that was started is stopped")
	}
	return err
}

// tell prints a line with the time since the beginning.
func (r *clustered) tell(format string, args ...any) {
	r.say("%6.1f s  "+format, append([]any{time.Since(r.began).Seconds()}, args...)...)
}

func (r *clustered) acts(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	r.sender = r.send(ctx)
	r.stops.Add(r.sender.end)
	r.tell("orders flow, %d a second, every %dth is sent twice", time.Second/pace, duplicates)
	for _, act := range []func(context.Context) error{r.flow, r.kill, r.flow, r.handOver, r.flow, r.finish, r.same} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open starts the shop, the servers, the nodes and the client.
func (r *clustered) open(ctx context.Context) (err error) {
	if err := r.openShop(); err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "edda-demo-cluster-"); err != nil {
		return fmt.Errorf("make a folder for the demo: %w", err)
	}
	r.stops.Add(r.cleanUp)
	if err := writeManifests(filepath.Join(r.dir, "manifests"), r.shop.URL()); err != nil {
		return err
	}
	r.say("shop      %s  (stock, payment, shipping; declines, loses and delays on purpose)", r.shop.URL())
	if r.servers, err = natsservers.Start(ctx, filepath.Join(r.dir, "nats")); err != nil {
		return err
	}
	r.stops.Add(r.servers.Stop)
	r.say("NATS      %s  (three servers: each message is on all)", r.servers.URLs())
	if err := r.openNodes(ctx); err != nil {
		return err
	}
	if r.client, err = harness.Connect(r.servers.URLs()); err != nil {
		return err
	}
	r.stops.Add(r.client.Close)
	r.ends = r.client.Listen(0)
	r.ends.Repeats = true
	return nil
}

// openNodes starts the nodes one after the other, so that n1 founds the cluster.
func (r *clustered) openNodes(ctx context.Context) error {
	addrs, err := harness.FreeAddrs(3)
	if err != nil {
		return err
	}
	for i, addr := range addrs {
		n := r.node(fmt.Sprintf("n%d", i+1), addr)
		r.nodes = append(r.nodes, n)
		if err := n.Start(); err != nil {
			return err
		}
		r.stops.Add(n.Stop)
		if i == 0 {
			r.owner = n
			if err := n.Until(ctx, startFor, func() error { return r.look(ctx, n) }); err != nil {
				return err
			}
			r.tell("%s has founded the cluster and owns the store   (%s, process %d)", n.name, n.api, n.PID())
		}
	}
	for _, n := range r.nodes[1:] {
		if err := r.awaitCopy(ctx, n, r.began); err != nil {
			return err
		}
		r.tell("%s has a copy of the store and follows the log   (%s, process %d)", n.name, n.api, n.PID())
	}
	return nil
}

// node prepares a node.
func (r *clustered) node(name, addr string) *demoNode {
	n := &demoNode{name: name, api: "http://" + addr, data: filepath.Join(r.dir, name)}
	n.Process = harness.New(name, filepath.Join(r.dir, name+".log"), func() *exec.Cmd {
		cmd := exec.Command(r.Edda, "run", "--role", "saga,effect", "--cluster", "shop", "--node", name, "--addr", addr, "--data", n.data,
			"--nats-url", r.servers.URLs(), "--gateway", r.shop.URL(), filepath.Join(r.dir, "manifests"))
		cmd.Env = harness.Environ("EDDA_EFFECTS_ALLOW=127.0.0.0/8") // the shop is on this machine
		// Ctrl-C is for this process, which then stops the nodes in order.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	})
	return n
}

// clusterView is what a node says of the cluster.
type clusterView struct {
	Owner string `json:"owner"`
	Epoch uint64 `json:"epoch"`
	Nodes []struct {
		Node  string    `json:"node"`
		Role  string    `json:"role"`
		State string    `json:"state"`
		LSN   uint64    `json:"lsn"`
		Lag   uint64    `json:"lag"`
		Since time.Time `json:"since"`
	} `json:"nodes"`
}

// ask asks a node who owns the store.
func (n *demoNode) ask(ctx context.Context) (s clusterView, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	return s, harness.GetJSON(ctx, n.api+"/cluster", &s)
}

// look asks a node whether it owns the store and serves, in a later epoch than the last owner.
func (r *clustered) look(ctx context.Context, n *demoNode) error {
	s, err := n.ask(ctx)
	if err != nil {
		return err
	}
	if s.Owner != n.name || s.Epoch <= r.epoch {
		return fmt.Errorf("%s says that %q owns the store in epoch %d", n.name, s.Owner, s.Epoch)
	}
	if err := harness.Ready(ctx, n.api+"/ready")(); err != nil {
		return err
	}
	r.owner, r.epoch = n, s.Epoch
	return nil
}

// awaitOwner waits until another node than the last owner owns the store.
func (r *clustered) awaitOwner(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, takeoverFor)
	defer cancel()
	last := r.owner
	err := harness.PollEvery(ctx, lookEvery, "another node to take over from "+last.name, func() (err error) {
		for _, n := range r.nodes {
			if n == last {
				continue
			}
			if err = r.look(ctx, n); err == nil {
				return nil
			}
		}
		return err
	})
	return r.with(err)
}

// awaitCopy waits until the owner says that a node which joined after a time is a copy.
func (r *clustered) awaitCopy(ctx context.Context, n *demoNode, joined time.Time) error {
	return n.Until(ctx, startFor, func() error {
		s, err := r.owner.ask(ctx)
		if err != nil {
			return err
		}
		for _, m := range s.Nodes {
			if m.Node == n.name && m.Role == "standby" && m.State == "alive" && m.Since.After(joined) {
				return nil
			}
		}
		return fmt.Errorf("%s knows no copy of it: %+v", r.owner.name, s.Nodes)
	})
}

// with adds the ends of the logs to an error.
func (r *clustered) with(err error) error {
	if err == nil {
		return nil
	}
	for _, n := range r.nodes {
		err = fmt.Errorf("%w\nthe end of the log of %s:\n%s", err, n.name, n.Tail())
	}
	return err
}

// flow lets orders flow for a while.
func (r *clustered) flow(ctx context.Context) error {
	select {
	case <-time.After(flowFor):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill kills the owner, and starts it again when another node has taken over.
func (r *clustered) kill(ctx context.Context) error {
	killed := r.owner
	r.tell("kill -9 %s, the owner: %d orders have been sent, %d have ended", killed.name, r.sender.count(), r.ends.Count())
	at := time.Now()
	killed.Kill()
	ended := r.ends.Count()
	if err := r.awaitOwner(ctx); err != nil {
		return err
	}
	r.tell("%s killed: %s owns the store after %s", killed.name, r.owner.name, since(at))
	if err := r.awaitEnds(ctx, ended); err != nil {
		return err
	}
	r.tell("orders end again, %s after the kill", since(at))
	return r.back(ctx, killed)
}

// handOver stops the owner, and starts it again when another node has taken over.
func (r *clustered) handOver(ctx context.Context) error {
	asked := r.owner
	r.tell("%s, the owner, is asked to stop (SIGTERM): %d orders have been sent, %d have ended", asked.name, r.sender.count(), r.ends.Count())
	at := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- asked.Stop() }()
	err := r.awaitOwner(ctx)
	took, ended := since(at), r.ends.Count()
	if err := errors.Join(err, <-stopped); err != nil {
		return err
	}
	r.tell("%s handed over: %s owns the store after %s", asked.name, r.owner.name, took)
	if err := r.awaitEnds(ctx, ended); err != nil {
		return err
	}
	r.tell("orders end again, %s after the SIGTERM", since(at))
	return r.back(ctx, asked)
}

// since is the time since a moment, as it is told.
func since(at time.Time) string { return fmt.Sprintf("%.2f s", time.Since(at).Seconds()) }

// awaitEnds waits until more orders have ended than a number of them.
func (r *clustered) awaitEnds(ctx context.Context, before int) error {
	ctx, cancel := context.WithTimeout(ctx, takeoverFor)
	defer cancel()
	return r.with(harness.PollEvery(ctx, lookEvery, "an order to end", func() error {
		if r.ends.Count() == before {
			return errors.New("none has")
		}
		return nil
	}))
}

// back starts a node again, and waits until it follows the new owner.
func (r *clustered) back(ctx context.Context, n *demoNode) error {
	at := time.Now()
	if err := n.Start(); err != nil {
		return err
	}
	if err := r.awaitCopy(ctx, n, at); err != nil {
		return err
	}
	r.tell("%s is back as a copy, %s after its start   (process %d)", n.name, since(at), n.PID())
	return nil
}

// finish ends the flow, waits until all orders have ended, and compares the books with the sagas.
func (r *clustered) finish(ctx context.Context) error {
	if err := r.sender.end(); err != nil {
		return err
	}
	r.Orders = r.sender.count()
	if err := r.client.Stored(ctx); err != nil {
		return err
	}
	r.tell("no more orders: %d have been sent, %d have ended; some customers never pay, and their orders wait 8 s", r.Orders, r.ends.Count())
	if err := r.ends.Await(ctx, r.Orders, nil); err != nil {
		return r.with(fmt.Errorf("not all orders ended: %w", err))
	}
	r.took = time.Since(r.sender.began)
	r.tell("all %d orders have ended\n", r.Orders)
	// A copy forwards the question to the owner.
	r.edda = &harness.Edda{API: r.standby().api}
	return r.verify(ctx)
}

// standby is a node that does not own the store.
func (r *clustered) standby() *demoNode {
	for _, n := range r.nodes {
		if n != r.owner {
			return n
		}
	}
	return nil
}

// same ends the nodes when the copies have all, and compares the rows of their stores. The owner
// is killed, because one that stops in order commits its last position, which no copy reads any more.
func (r *clustered) same(ctx context.Context) error {
	if err := r.awaitQuiet(ctx); err != nil {
		return err
	}
	for _, n := range r.nodes {
		if n != r.owner {
			if err := n.Stop(); err != nil {
				return err
			}
		}
	}
	r.owner.Kill()
	var copies []string
	for _, n := range r.nodes {
		c, err := n.rows(ctx)
		if err != nil {
			return err
		}
		copies = append(copies, c)
	}
	return r.judge(copies)
}

// judge compares the rows of the stores.
func (r *clustered) judge(copies []string) error {
	for i, c := range copies {
		if c != copies[0] {
			return fmt.Errorf("the stores differ: %s has %s, and %s has %s", r.nodes[0].name, copies[0], r.nodes[i].name, c)
		}
	}
	r.say("The stores of n1, n2 and n3 have the same rows: %s.", copies[0])
	return nil
}

// awaitQuiet waits until each copy has what the owner has.
func (r *clustered) awaitQuiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	last := uint64(0)
	return r.with(harness.Poll(ctx, "the copies to have everything", func() error {
		s, err := r.owner.ask(ctx)
		if err != nil {
			return err
		}
		lsn := uint64(0)
		for _, n := range s.Nodes {
			if n.Lag > 0 || lsn > 0 && n.LSN != lsn {
				return fmt.Errorf("%s has record %d of the log and lags by %d", n.Node, n.LSN, n.Lag)
			}
			lsn = n.LSN
		}
		if was := last; was != lsn {
			last = lsn
			return fmt.Errorf("the log went on from record %d to %d", was, lsn)
		}
		return nil
	}))
}

// rows tells the rows of a stopped node's store: the number of its last transaction, and their hash.
func (n *demoNode) rows(ctx context.Context) (_ string, err error) {
	s, err := store.OpenReplica(filepath.Join(n.data, "store"), store.Options{})
	if err != nil {
		return "", fmt.Errorf("the store of %s: %w", n.name, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	at, sum, err := s.Hash(ctx)
	if err != nil {
		return "", fmt.Errorf("the store of %s: %w", n.name, err)
	}
	return fmt.Sprintf("transaction %d, SHA-256 %x", at.Transaction, sum[:16]), nil
}
