package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda/internal/backoff"
	"edda/server"
)

const (
	// clusterEvery is how often a cluster is asked for during a hand-over or with --watch.
	clusterEvery = 500 * time.Millisecond
	// longDead is how long a node is dead before a person may think of forgetting it; a restart takes less.
	longDead = time.Minute
	// moveWait is much longer than a hand-over takes.
	moveWait = time.Minute
)

func (t *terminal) clusterCommand() *cobra.Command {
	c := &client{term: t}
	noun := &cobra.Command{
		Use: "cluster", Short: "Begin a cluster, show its nodes, and hand its store over", Args: noun, RunE: help,
		Long: `Begin a cluster, show its nodes, and hand its store over. One node owns the store;
each of the others has a copy, forwards calls to the owner, and takes over if it is
dead. Any node can be asked.`,
		Example: "  edda cluster status\n  edda cluster move --to n2 --why \"n1 gets a new disk\"",
	}
	for _, call := range []*cobra.Command{c.clusterStatus(), c.clusterMove(), c.clusterDeploy(), c.clusterManifests(), c.clusterForget(), c.clusterFinalize()} {
		c.register(call)
		onlyWords(call, "ca", "cert", "token-file")
		noun.AddCommand(call)
	}
	noun.AddCommand(t.clusterInitCommand(), t.clusterRelogCommand(), t.clusterLeaveCommand(), t.clusterSplitCommand(), t.clusterEndCommand())
	return noun
}

func (c *client) clusterStatus() *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use: "status", Short: "Show who owns the store, and how far each copy is", Args: args(cobra.NoArgs),
		Long: `Show who owns the store, and how far each copy is. It exits 1 while no node owns the
store. Lag is how many records of the log a copy does not have. Any node answers,
also a standby.`,
		Example: "  edda cluster status --addr n2.internal:8700\n  edda cluster status --watch",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return c.watchCluster(cmd.Context())
			}
			var s server.ClusterStatus
			raw, err := c.get(cmd.Context(), "/cluster", &s)
			if err != nil {
				return err
			}
			if c.output == outputTable {
				fmt.Fprint(c.term.out, clusterPicture(s, c.term.color(c.term.out)))
			} else if err := clusterNodes(s).print(c.term, c.output, raw, s.Nodes); err != nil {
				return err
			}
			return unowned(s)
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it again until Ctrl-C")
	c.output.register(cmd)
	return cmd
}

// unowned returns an error if the store, or that of a shard, has no owner.
func unowned(s server.ClusterStatus) error {
	if len(s.Shards) == 0 && s.Owner == "" {
		return fmt.Errorf("no node owns the store of the cluster %s now", s.Name)
	}
	for _, shard := range s.Shards {
		if shard.Owner == "" {
			return fmt.Errorf("no node owns shard %d of the cluster %s now", shard.Shard, s.Name)
		}
	}
	return nil
}

// shardsPicture is a cluster with several shards for people: its nodes, who owns which shard, and what is wrong.
func shardsPicture(s server.ClusterStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d shards, level %d (as %s knows it)\n", printable(s.Name), len(s.Shards), s.Level, printable(s.Node))
	listing[server.ClusterNode]{columns: []column[server.ClusterNode]{
		{"node", func(n server.ClusterNode) string { return n.Node }},
		{"state", func(n server.ClusterNode) string { return n.State }},
		{"owns", func(n server.ClusterNode) string { return strings.Trim(fmt.Sprint(n.Owns), "[]") }},
		{"last beat", func(n server.ClusterNode) string { return lastBeat(s, n) }},
		{"version", func(n server.ClusterNode) string { return n.Version }},
		{"url", func(n server.ClusterNode) string { return n.URL }},
		{"problem", func(n server.ClusterNode) string { return n.Problem }},
	}}.table(&b, s.Nodes)
	listing[server.ClusterShard]{columns: []column[server.ClusterShard]{
		{"shard", func(p server.ClusterShard) string { return strconv.Itoa(p.Shard) }},
		{"owner", func(p server.ClusterShard) string { return cmp.Or(p.Owner, "NOBODY") }},
		{"epoch", func(p server.ClusterShard) string { return strconv.FormatUint(p.Epoch, 10) }},
		{"record", func(p server.ClusterShard) string { return strconv.FormatUint(p.LSN, 10) }},
		{"copies", func(p server.ClusterShard) string {
			var copies []string
			for _, n := range p.Nodes {
				if n.Role == server.NodeStandby && n.State == server.NodeAlive {
					copies = append(copies, fmt.Sprintf("%s (lag %d)", n.Node, n.Lag))
				}
			}
			return strings.Join(copies, ", ")
		}},
		{"problem", func(p server.ClusterShard) string { return p.Problem }},
	}}.table(&b, s.Shards)
	if s.Problem != "" {
		fmt.Fprintln(&b, printable("problem: "+s.Problem))
	}
	for _, line := range forgettable(s) {
		fmt.Fprintln(&b, printable(line))
	}
	return b.String()
}

// forgettable says how to forget the nodes that have been dead for long.
func forgettable(s server.ClusterStatus) (lines []string) {
	for _, n := range s.Nodes {
		if n.State == server.NodeDead && time.Duration(n.BeatAge)*time.Millisecond >= longDead {
			lines = append(lines, fmt.Sprintf("node %s is dead: start it again, or edda cluster forget %s if it does not come back", n.Node, n.Node))
		}
	}
	return lines
}

// watchCluster draws the cluster until ctx ends, also while nobody answers.
func (c *client) watchCluster(ctx context.Context) error {
	if c.output != outputTable {
		return usagef("--watch draws a table: leave out -o %s", c.output)
	}
	screen := canvas{out: c.term.out, terminal: isTerminal(c.term.out)}
	for {
		var s server.ClusterStatus
		picture := ""
		_, err := c.get(ctx, "/cluster", &s)
		var refused *refusedError
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &refused) && refused.status < http.StatusInternalServerError:
			return err
		case err != nil:
			picture = printable(err.Error()) + "\n"
		default:
			picture = clusterPicture(s, c.term.color(c.term.out))
		}
		screen.draw(picture, false)
		if backoff.Wait(ctx, clusterEvery) != nil {
			return nil
		}
	}
}

// clusterPicture is a cluster for people: who owns the store, the nodes, and what is wrong.
func clusterPicture(s server.ClusterStatus, color bool) string {
	if len(s.Shards) > 0 {
		return shardsPicture(s)
	}
	var b strings.Builder
	head := fmt.Sprintf("%s: %s owns the store; epoch %d, level %d", printable(s.Name), printable(s.Owner), s.Epoch, s.Level)
	if s.Owner == "" {
		head = fmt.Sprintf("%s: NOBODY OWNS THE STORE NOW; last epoch %d, level %d", printable(s.Name), s.Epoch, s.Level)
		if color {
			head = "\x1b[31;1m" + head + "\x1b[0m"
		}
	}
	fmt.Fprintf(&b, "%s (as %s knows it)\n", head, printable(s.Node))
	clusterNodes(s).table(&b, s.Nodes)
	for _, line := range clusterAdvice(s) {
		fmt.Fprintln(&b, printable(line))
	}
	return b.String()
}

// clusterAdvice says what a person should know or do.
func clusterAdvice(s server.ClusterStatus) (lines []string) {
	if s.Problem != "" {
		lines = append(lines, "problem: "+s.Problem)
	}
	copies, next := 0, 0 // standbys that are not dead; the level that all nodes know
	for i, n := range s.Nodes {
		if n.State != server.NodeDead && n.Role == server.NodeStandby {
			copies++
		}
		if next = min(next, n.Level); i == 0 {
			next = n.Level
		}
	}
	switch {
	case s.Owner == "" && copies > 0:
		lines = append(lines, "calls are answered 503 until a standby takes over, some seconds after the owner is found dead")
	case s.Owner == "":
		lines = append(lines, "calls are answered 503, and no living node here has a copy that could take over: start a node that has one")
	case copies == 0:
		lines = append(lines, "no living standby has a copy: if the owner dies, nobody takes over")
	}
	if s.Owner != "" && next > s.Level {
		lines = append(lines, fmt.Sprintf("all nodes know level %d: once none of them will go back to an older version, edda cluster finalize --why TEXT raises it", next))
	}
	return append(lines, forgettable(s)...)
}

// clusterNodes lists the nodes of a cluster.
func clusterNodes(s server.ClusterStatus) listing[server.ClusterNode] {
	return listing[server.ClusterNode]{
		id: func(n server.ClusterNode) string { return n.Node },
		columns: []column[server.ClusterNode]{
			{"node", func(n server.ClusterNode) string { return n.Node }},
			{"role", func(n server.ClusterNode) string { return n.Role }},
			{"state", func(n server.ClusterNode) string { return n.State }},
			{"lag", func(n server.ClusterNode) string { return strconv.FormatUint(n.Lag, 10) }},
			{"record", func(n server.ClusterNode) string { return strconv.FormatUint(n.LSN, 10) }},
			{"last beat", func(n server.ClusterNode) string { return lastBeat(s, n) }},
			{"version", func(n server.ClusterNode) string { return n.Version }},
			{"level", func(n server.ClusterNode) string { return strconv.Itoa(n.Level) }},
			{"url", func(n server.ClusterNode) string { return n.URL }},
			{"manifests", func(n server.ClusterNode) string {
				if n.Revision == 0 {
					return ""
				}
				return fmt.Sprintf("revision %d", n.Revision)
			}},
			{"problem", func(n server.ClusterNode) string { return n.Problem }},
		},
	}
}

// lastBeat says when a node was heard of last.
func lastBeat(s server.ClusterStatus, n server.ClusterNode) string {
	if n.Node == s.Node {
		return "answers"
	}
	silence, unit := time.Duration(n.BeatAge)*time.Millisecond, 100*time.Millisecond
	if silence > 10*time.Second {
		unit = time.Second
	}
	return silence.Round(unit).String() + " ago"
}

func (c *client) clusterMove() *cobra.Command {
	var to string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "move", Short: "Have the owner hand the store over to another node", Args: args(cobra.NoArgs),
		Long: `Have the owner hand the store over to another node: to the one that --to names, or to
the standby with the most records. Calls are answered 503 meanwhile, for about a
second. The command ends when the other node owns the store.`,
		Example: "  edda cluster move --why \"n1 gets a new disk\"\n  edda cluster move --to n2 --wait 0s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait < 0 {
				return usagef("--wait %s: want 0s or more", wait)
			}
			path := "/cluster/move"
			if to != "" {
				path += "?" + url.Values{"to": {to}}.Encode()
			}
			var m server.ClusterMove
			raw, err := c.callInto(cmd.Context(), http.MethodPost, path, nil, &m)
			if err != nil {
				return err
			}
			if err := c.acted(raw, m.To, fmt.Sprintf("%s hands the store over to %s", m.From, m.To), nil); err != nil || wait == 0 {
				return err
			}
			return c.handedOver(cmd.Context(), m, wait)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the node that takes over (default: the standby with the most records)")
	cmd.Flags().DurationVar(&wait, "wait", moveWait, "how long to wait until the other node owns the store; 0s: not at all")
	offerBy(cmd, "to", c.completeNodes)
	c.registerReason(cmd)
	c.output.register(cmd)
	return cmd
}

// handedOver waits until a hand-over is complete. The nodes may not answer meanwhile, because each of the two
// opens its server anew.
func (c *client) handedOver(ctx context.Context, m server.ClusterMove, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		var s server.ClusterStatus
		_, err := c.get(ctx, "/cluster", &s)
		if err == nil && s.Owner != "" && s.Epoch > m.Epoch {
			if s.Owner != m.To {
				return fmt.Errorf("%s owns the store now, and not %s: see edda cluster status", s.Owner, m.To)
			}
			if c.output == outputTable {
				fmt.Fprintln(c.term.out, printable(fmt.Sprintf("%s owns the store; epoch %d", s.Owner, s.Epoch)))
			}
			return nil
		}
		if backoff.Wait(ctx, clusterEvery) != nil {
			return fmt.Errorf("%s does not own the store within %s: see edda cluster status", m.To, wait)
		}
	}
}

func (c *client) clusterForget() *cobra.Command {
	cmd := &cobra.Command{
		Use: "forget NODE", Short: "Forget a dead node that does not come back", Args: args(cobra.ExactArgs(1)),
		Long: `Forget a dead node that does not come back. Until then status shows it, and the log
is kept for its copy, up to cluster.log_max_bytes. A node that comes back is known
again.`,
		Example:           "  edda cluster forget n4 --why \"its machine was returned\"",
		ValidArgsFunction: c.completeNodes,
		RunE: func(cmd *cobra.Command, words []string) error {
			raw, err := c.call(cmd.Context(), http.MethodPost, "/cluster/forget/"+url.PathEscape(words[0]), nil)
			if err != nil {
				return err
			}
			return c.acted(raw, words[0], words[0]+" is forgotten", nil)
		},
	}
	c.registerReason(cmd)
	c.output.register(cmd)
	return cmd
}

func (c *client) clusterFinalize() *cobra.Command {
	cmd := &cobra.Command{
		Use: "finalize", Short: "Raise the level of the cluster after an upgrade of all nodes", Args: args(cobra.NoArgs),
		Long: `Raise the level of the cluster to the highest that all its nodes know, so that what is
new in their version can be used. Programs that do not know that level cannot take
part again.`,
		Example: "  edda cluster finalize --why \"all nodes run the new version since Monday\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.reasoned("finalize"); err != nil {
				return err
			}
			if err := c.sure(true, "a higher level of the cluster"); err != nil {
				return err
			}
			var l server.ClusterLevel
			raw, err := c.callInto(cmd.Context(), http.MethodPost, "/cluster/finalize", nil, &l)
			if err != nil {
				return err
			}
			return c.acted(raw, strconv.Itoa(l.Level), fmt.Sprintf("the level of the cluster is %d", l.Level), nil)
		},
	}
	c.registerActor(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	c.output.register(cmd)
	return cmd
}

// completeNodes completes the nodes that could take over.
func (c *client) completeNodes(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	var s server.ClusterStatus
	if _, err := c.get(ctx, "/cluster", &s); err != nil {
		return nil, noFiles
	}
	var out []string
	for _, n := range s.Nodes {
		if n.Role == server.NodeStandby && n.State == server.NodeAlive && strings.HasPrefix(n.Node, typed) {
			out = append(out, cobra.CompletionWithDesc(n.Node, fmt.Sprintf("lag %d", n.Lag)))
		}
	}
	return out, noFiles
}
