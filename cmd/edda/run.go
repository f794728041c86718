package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"edda"
	"edda/stream"
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
			read := func() (config, error) {
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
			if c.Hero, err = c.Hero.fromEnv(t.getenv); err != nil {
				return err
			}
			c.Redis.URL = cmp.Or(c.Redis.URL, redisFromEnv(c, t.getenv))
			return t.serve(cmd.Context(), settings{config: c, env: t.getenv, reread: read}, nil)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "config", "", "configuration file (EDDA_CONFIG)")
	f.String("role", roleCombined, "one or several of saga, effect, combined, coordinator, runner; with commas between")
	f.String("addr", defaultAddr, "address of the HTTP server")
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
	offer(c, "role", roles())
	var unused settings // loadConfig reads the flags that were given by their names
	unused.config = defaults()
	unused.registerHero(f)
	f.Bool("adopt-empty", false, "take tenants over that another store served, without their instances; audited")
	f.Bool("accept-stream-loss", false, "go on although a stream begins behind what was handled, or was made anew; audited")
	return c
}

// serve runs a process until ctx ends. It calls ready when all parts have started. If the
// NATS server loses a suffix of a stream that was handled, serve stops the process in
// stages and starts another one, because checkpoints move back only at a start.
func (t *terminal) serve(ctx context.Context, s settings, ready func(*process, loaded)) error {
	for {
		err := t.serveOnce(ctx, s, ready)
		if !errors.Is(err, stream.ErrShorter) || ctx.Err() != nil {
			return err
		}
	}
}

// serveOnce runs one process.
func (t *terminal) serveOnce(ctx context.Context, s settings, ready func(*process, loaded)) error {
	if len(s.Manifests) == 0 && s.manifested() {
		return usagef("no manifests: name files or folders as arguments, or with manifests: in the configuration")
	}
	l, err := startable(s, s.Manifests)
	if err != nil {
		return err
	}
	if t.printProblems(l.problems, t.err) {
		return errNothingStarted
	}
	hungUp, release := hangups() // early, because a SIGHUP during the start must not end the process
	defer release()
	attached := isTerminal(t.in)
	log, err := t.logger(s.Log.Level, s.dev && isTerminal(t.err))
	if err != nil {
		return err
	}
	p, err := newProcess(s, l, log)
	if err != nil {
		return clear(err)
	}
	log.Info("listening", zap.String("addr", p.server.Addr()), zap.String("probe_addr", p.server.ProbeAddr()))
	p.announce = func() {
		log.Info("started", zap.String("role", s.Role), zap.String("addr", p.server.Addr()), zap.String("store", p.db.ID()))
		p.logHero()
		notify(log, daemon.SdNotifyReady)
		if ready != nil {
			ready(p, l)
		}
	}
	hearing, stop := context.WithCancel(ctx)
	deaf := make(chan struct{})
	go func() {
		defer close(deaf)
		p.reloadOnHangup(hearing, hungUp, func() bool { return attached && !isTerminal(t.in) })
	}()
	err = p.Run(ctx)
	stop()
	<-deaf
	if errors.Is(err, stream.ErrShorter) && ctx.Err() == nil {
		log.Warn("stopped in order, and starting anew", zap.Error(err))
		notify(log, daemon.SdNotifyReloading)
		return err
	}
	notify(log, daemon.SdNotifyStopping)
	return clear(err)
}

// errNothingStarted follows the list of manifest errors.
var errNothingStarted = errors.New("the manifests have errors; nothing was started")

// notify sends a state to systemd, if it supervises this process.
func notify(log *zap.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd is not told", zap.Error(err))
	}
}

// clear removes an error that only reports the requested stop.
func clear(err error) error {
	if err == nil || errors.Is(err, context.Canceled) && !errors.Is(err, edda.Permanent) {
		return nil
	}
	return err
}
