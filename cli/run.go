package cli

import (
	"context"

	"github.com/spf13/cobra"

	"edda/manifests"
	"edda/node"
)

func (t *terminal) runCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "run [PATH...]", Short: "Run sagas in production, over the NATS you have",
		Long: `Run sagas in production. Settings come from flags, EDDA_* variables and the
configuration file, in this order; NATS is named as for the nats CLI (NATS_URL,
NATS_CREDS, NATS_CONTEXT, ...). See what is used with: edda config view`,
		Example: "  edda run --config edda.yaml --role combined",
		RunE: func(cmd *cobra.Command, paths []string) error {
			read := func() (node.Config, error) {
				c, err := t.loadConfig(file, cmd.Flags())
				if len(paths) > 0 {
					c.Manifests = paths
				}
				return c, err
			}
			c, err := read()
			if err != nil {
				return err
			}
			if c, err = c.FromEnv(t.getenv); err != nil {
				return err
			}
			return t.serve(cmd.Context(), node.Settings{Config: c, Reread: read}, nil)
		},
	}
	f := c.Flags()
	unused := node.Defaults() // loadConfig reads the flags that were given by their names
	f.StringVar(&file, "config", "", "configuration file (EDDA_CONFIG)")
	f.String("role", unused.Role, "one or several of saga, effect, combined, coordinator, runner; with commas between")
	f.String("addr", unused.Addr, "address of the HTTP server")
	f.String("probe-addr", "", "answer /health /live /ready /metrics here as well: any address, no token needed")
	f.String("tokens", "", "file of tokens: who may call; see edda token")
	f.String("tls-cert", "", "certificate of the HTTP server; with --tls-key")
	f.String("tls-key", "", "its key")
	f.String("tls-client-ca", "", "only clients with a certificate of these authorities may connect")
	f.String("data", "", "folder of the store")
	f.String("nats-url", "", "where NATS is")
	f.String("nats-context", "", "context of the nats CLI")
	f.String("gateway", "", "URL that takes aggregate commands")
	f.StringSlice("tenants", nil, "only these tenants, * matches")
	offer(c, "role", node.Roles())
	registerHero(f, &unused)
	f.Bool("adopt-empty", false, "take tenants over that another store served, without their instances; audited")
	f.Bool("accept-stream-loss", false, "go on although a stream begins behind what was handled, or was made anew; audited")
	return c
}

// serve runs a process until ctx ends. It calls ready when all parts have started; ready may
// be nil.
func (t *terminal) serve(ctx context.Context, s node.Settings, ready func(node.Running)) error {
	log, err := t.logger(s.Log.Level, s.Dev && isTerminal(t.err))
	if err != nil {
		return err
	}
	attached := isTerminal(t.in)
	s.Env, s.Build = t.getenv, t.build()
	return node.Run(ctx, s, node.Host{
		Log: log, Ready: ready,
		Problems: func(ps manifests.Problems) { t.printProblems(ps, t.err) },
		Detached: func() bool { return attached && !isTerminal(t.in) },
	})
}
