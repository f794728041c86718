package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"edda/node"
)

// clusterStore is a command on the store in the data folder of a node that has stopped.
type clusterStore struct {
	term   *terminal
	output outputFlag
	file   string
}

func (v *clusterStore) command(use, short, long, example string, do func(context.Context, node.Settings, *zap.Logger) error) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Long: long, Example: example, Args: args(cobra.NoArgs)}
	f := c.Flags()
	f.StringVar(&v.file, "config", "", "configuration file ("+envConfig+")")
	f.String("cluster", "", "name of the cluster")
	f.String("node", "", "name of this node in its cluster; the host's by default")
	f.String("data", "", "folder of the store")
	f.String("nats-url", "", "URL of NATS")
	f.String("nats-context", "", "context of the nats CLI")
	v.output.register(c)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		config, err := v.term.loadConfig(v.file, cmd.Flags())
		if err != nil {
			return err
		}
		if config, err = config.FromEnv(v.term.getenv); err != nil {
			return err
		}
		if config.Cluster.Name == "" && use != "leave" {
			return usagef("name the cluster with --cluster")
		}
		log, err := v.term.logger(config.Log.Level, true) // a person reads them, beside the lines of the command
		if err != nil {
			return err
		}
		return do(cmd.Context(), node.Settings{Config: config, Env: v.term.getenv, Build: v.term.build()}, log)
	}
	return c
}

func (t *terminal) clusterInitCommand() *cobra.Command {
	v := &clusterStore{term: t}
	fromDev := false
	c := v.command("init", "Make a store that exists the one of a new cluster", `Make the store in the data folder that of a new cluster. Without it the first
node that starts with --cluster begins the cluster, with its store or a new one.
Stop the process of the store first; afterwards start this node before others.
With --from-dev the folder is that of edda dev: its streams are copied to the NATS
of the cluster first, with the numbers of their messages.`,
		"  edda cluster init --cluster shop --data /var/lib/edda\n  edda cluster init --cluster shop --data .edda --from-dev",
		func(ctx context.Context, s node.Settings, log *zap.Logger) error {
			begin := node.InitCluster
			if fromDev {
				begin = node.InitClusterFromDev
			}
			b, err := begin(ctx, s, log)
			if err != nil {
				return err
			}
			return t.show(v.output, b, func() {
				keeps := "store " + b.Store
				if b.Shards > 0 {
					keeps = fmt.Sprintf("the stores of %d shards", b.Shards)
				}
				fmt.Fprintf(t.out, "cluster %s keeps %s: start node %s with edda run --cluster %s, then the others with empty data folders\n",
					b.Cluster, keeps, b.Node, b.Cluster)
			})
		})
	c.Flags().BoolVar(&fromDev, "from-dev", false, "copy the streams of edda dev in this folder, too")
	return c
}

func (t *terminal) clusterRelogCommand() *cobra.Command {
	v := &clusterStore{term: t}
	drop := false
	c := v.command("relog", "Begin the log of a cluster again with the copy of this node", `Begin the replicated log again with the copy in the data folder, when JetStream
has lost the log, its end, or the cluster's bucket. Stop all nodes first. Take
the node whose copy ends at the highest transaction: each node says at a start
where its copy ends. Nothing that was answered as committed is lost then. The
other nodes follow on, or copy the store anew. If the bucket alone is lost, the log
stays as it is. A log that has what the copy lacks is kept, unless --drop-log
says that this may be lost.`,
		"  edda cluster relog --cluster shop --data /var/lib/edda",
		func(ctx context.Context, s node.Settings, log *zap.Logger) error {
			fmt.Fprintln(t.err, "looking for nodes that run")
			b, err := node.RelogCluster(ctx, s, log, drop)
			if err != nil {
				return err
			}
			return t.show(v.output, b, func() {
				if b.LogKept {
					fmt.Fprintf(t.out, "the bucket of cluster %s is made again; its log is whole and stays as it is: start the nodes\n", b.Cluster)
					return
				}
				fmt.Fprintf(t.out, "the log of cluster %s begins again behind transaction %d: start node %s first\n", b.Cluster, b.Transaction, b.Node)
			})
		})
	c.Flags().BoolVar(&drop, "drop-log", false, "lose what the log has and this copy lacks")
	return c
}

func (t *terminal) clusterLeaveCommand() *cobra.Command {
	v := &clusterStore{term: t}
	var o node.LeaveOptions
	c := v.command("leave", "Take a copy out of its cluster, for a process that is alone", `Make the copy in the data folder a store of its own, which edda run takes without
--cluster. Stop all nodes of the cluster first, and take the node that owned the
store last: a copy that has less than the log is refused. The folder cannot come
back to the cluster, and no other node of it can start. With --to-dev the streams
of the store are copied into the folder, which edda dev --data takes.`,
		"  edda cluster leave --data /var/lib/edda\n  edda cluster leave --data /var/lib/edda --to-dev",
		func(ctx context.Context, s node.Settings, log *zap.Logger) error {
			if o.Unchecked && o.ToDev {
				return usagef("--unchecked is for a NATS that is gone, and --to-dev copies streams from it")
			}
			if !o.Unchecked {
				fmt.Fprintln(t.err, "looking for nodes that run")
			}
			name, err := node.LeaveCluster(ctx, s, log, o)
			if err != nil {
				return err
			}
			return t.show(v.output, map[string]string{"cluster": name}, func() {
				fmt.Fprintf(t.out, "the store in %s is no copy of cluster %s any more; edda cluster end --cluster %s removes its log and its bucket\n", s.Data, name, name)
			})
		})
	c.Flags().BoolVar(&o.ToDev, "to-dev", false, "copy the streams of the store into the folder, for edda dev")
	c.Flags().BoolVar(&o.Unchecked, "unchecked", false, "NATS is gone: do not look whether another copy has more, or a node runs")
	return c
}

func (t *terminal) clusterSplitCommand() *cobra.Command {
	v := &clusterStore{term: t}
	to := ""
	c := v.command("split", "Write the stores of twice as many shards", `Write the stores of twice as many shards into a new folder: of one store two, of four
four more. Each half has the rows of its keys. The stores in the data folder stay as
they are. They must have left their cluster (edda cluster leave), or never have been
in one, and no process may run on them afterwards: begin the cluster anew with the
new folder (edda cluster end, edda cluster init).`,
		"  edda cluster split --cluster shop --data /var/lib/edda --to /var/lib/edda-2",
		func(ctx context.Context, s node.Settings, log *zap.Logger) error {
			if to == "" {
				return usagef("name the new folder with --to")
			}
			split, err := node.SplitCluster(ctx, s, log, to)
			if err != nil {
				return err
			}
			return t.show(v.output, split, func() {
				fmt.Fprintf(t.out, "%s has the stores of %d shards: edda cluster end --cluster %s, then edda cluster init --cluster %s --data %s, and start a node with it\n",
					split.Data, split.Shards, s.Cluster.Name, s.Cluster.Name, split.Data)
			})
		})
	c.Flags().StringVar(&to, "to", "", "new folder for the stores")
	return c
}

func (t *terminal) clusterEndCommand() *cobra.Command {
	v := &clusterStore{term: t}
	return v.command("end", "Remove the log and the bucket of a cluster that has ended", `Remove the replicated log and the bucket of a cluster for good. Stop all nodes first.
The copies of the nodes stay: take one out with edda cluster leave, or restore a
backup, and begin a cluster again with edda cluster init.`,
		"  edda cluster end --cluster shop",
		func(ctx context.Context, s node.Settings, log *zap.Logger) error {
			fmt.Fprintln(t.err, "looking for nodes that run")
			was, err := node.EndCluster(ctx, s, log)
			if err != nil {
				return err
			}
			return t.show(v.output, map[string]any{"cluster": s.Cluster.Name, "ended": was}, func() {
				if !was {
					fmt.Fprintf(t.out, "there was no cluster %s\n", s.Cluster.Name)
					return
				}
				fmt.Fprintf(t.out, "cluster %s has ended\n", s.Cluster.Name)
			})
		})
}
