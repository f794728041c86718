package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"edda/manifests"
	"edda/node"
)

func (t *terminal) runCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use: "run [PATH...]", Short: "Run sagas in production, over your NATS",
		Long: `Run sagas in production. Settings come from flags, EDDA_* variables and the
configuration file, in this order; NATS is named as for the nats CLI (NATS_URL,
NATS_CREDS, NATS_CONTEXT, ...). Show the result with: edda config view`,
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
	f.String("probe-addr", "", "second address for /health /live /ready /metrics, without a token")
	f.String("tokens", "", "file with the tokens of callers; see edda token")
	f.String("tls-cert", "", "certificate of the HTTP server; with --tls-key")
	f.String("tls-key", "", "its key")
	f.String("tls-client-ca", "", "only clients with a certificate of these authorities may connect")
	f.String("data", "", "folder of the store")
	f.String("nats-url", "", "URL of NATS")
	f.String("nats-context", "", "context of the nats CLI")
	f.String("cluster", "", "name of the cluster that keeps this store")
	f.String("node", "", "name of this node in its cluster; the host's by default")
	f.Int("shards", 0, "stores of a new cluster, each with a part of the keys: a power of two")
	f.String("advertise", "", "URL at which other nodes of the cluster reach this one")
	f.String("gateway", "", "URL that takes aggregate commands")
	f.StringSlice("tenants", nil, "only these tenants; * matches any text")
	offer(c, "role", node.Roles())
	registerHero(f, &unused)
	f.Bool("adopt-empty", false, "take over tenants of another store, without their instances; audited")
	f.Bool("accept-stream-loss", false, "continue although a stream begins behind the checkpoint, or was made anew; audited")
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
	return node.Run(ctx, s, node.Hooks{
		Log: log, Ready: ready, Hint: func(r node.Running, h node.Hint) { t.hint(s, r, h) },
		Problems: func(ps manifests.Problems) { t.printProblems(ps, t.err) },
		Detached: func() bool { return attached && !isTerminal(t.in) },
	})
}

// others lists variables with the prefix EDDA_ that are no settings.
func others() []string {
	return []string{envConfig, envURL, "EDDA_TENANT", "EDDA_REDIS", "EDDA_HERO_LOGS", envToken, envTokenFile, envCA, envCert, envKey}
}

// envConfig names the configuration file.
const envConfig = "EDDA_CONFIG"

// loadConfig merges the file, the environment and the given flags.
func (t *terminal) loadConfig(file string, flags *pflag.FlagSet) (node.Config, error) {
	return t.loadSources(node.Sources{File: cmp.Or(file, t.getenv(envConfig)), Flags: flags})
}

// loadSources adds the environment to a file and flags.
func (t *terminal) loadSources(s node.Sources) (node.Config, error) {
	s.Environ, s.Others = t.env, others()
	return node.Load(s)
}

func (t *terminal) configCommand() *cobra.Command {
	var file string
	noun := &cobra.Command{Use: "config", Short: "Show the configuration", Args: noun, RunE: help}
	view := &cobra.Command{
		Use: "view", Short: "Show the settings of edda run, from file, environment and defaults", Args: args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			c, err := t.loadConfig(file, nil)
			if err != nil {
				return err
			}
			text, err := c.YAML()
			if err != nil {
				return err
			}
			_, err = t.out.Write(text)
			return err
		},
	}
	view.Flags().StringVar(&file, "config", "", "configuration file ("+envConfig+")")
	noun.AddCommand(view)
	return noun
}

// logger makes a logger that writes JSON, or readable lines on a terminal.
func (t *terminal) logger(level string, human bool) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil {
		return nil, usagef("log level %q: want debug, info, warn or error", level)
	}
	out := zapcore.Lock(zapcore.AddSync(t.err))
	c := zap.NewProductionEncoderConfig()
	c.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	if !human {
		return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(c), out, l)), nil
	}
	c.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	c.EncodeLevel = zapcore.LowercaseLevelEncoder
	if t.color(t.err) {
		c.EncodeLevel = zapcore.LowercaseColorLevelEncoder
	}
	c.ConsoleSeparator = "  "
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(c), out, l)), nil
}

// fewWarnings bounds the warnings that a start or a reload prints. The others are counted.
const fewWarnings = 3

// printProblems prints all errors, or the first warnings if there are no errors. It returns
// whether there are errors.
func (t *terminal) printProblems(ps manifests.Problems, w io.Writer) bool {
	if ps.Failed() {
		onlyErrors(ps).Print(w, t.color(w))
		return true
	}
	if len(ps) == 0 {
		return false
	}
	ps[:min(len(ps), fewWarnings)].Print(w, t.color(w))
	if len(ps) > fewWarnings {
		fmt.Fprintf(w, "edda: %d more warnings in the manifests; edda lint shows them\n", len(ps)-fewWarnings)
	}
	return false
}
