package node

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"

	"edda/server"
)

// maxLogged bounds the manifest problems that one reload logs.
const maxLogged = 20

// hangups subscribes to SIGHUP and returns the signals and a function to unsubscribe. It
// merges signals that arrive while one is being handled.
func hangups() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}

// onHangup calls reload at each SIGHUP until ctx ends. If the SIGHUP means that the terminal is
// closed, it calls stop and returns, as at Ctrl-C, because the user could not reach the process any more.
func onHangup(ctx context.Context, signals <-chan os.Signal, terminalGone func() bool, sup *systemd, log *zap.Logger, stop func(), reload func() bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		if terminalGone() {
			log.Warn("the terminal is gone: stopping")
			stop()
			return
		}
		sup.reload(reload)
	}
}

// hungUp reloads the manifests, the tokens and the certificates, and reports whether everything was reloaded. It logs
// what was not.
func (p *process) hungUp(ctx context.Context) bool {
	r, err := p.Reload(ctx, server.ReloadOrder{Operator: server.Operator{By: "SIGHUP"}})
	if err != nil {
		p.log.Error("SIGHUP: nothing was reloaded; what ran before runs on", zap.Error(err))
		return false
	}
	if r.Kept != "" {
		p.log.Error("SIGHUP: a file of those who may call was not taken in", zap.String("problem", r.Kept))
	}
	for i, one := range r.Problems {
		if i == maxLogged {
			p.log.Warn("SIGHUP: more problems are not logged; edda lint and edda test show them", zap.Int("problems", len(r.Problems)))
			break
		}
		say := p.log.Error
		if one.Warning {
			say = p.log.Warn
		}
		say("SIGHUP: a problem in the manifests", zap.String("file", one.File), zap.Int("line", one.Line), zap.String("problem", one.Message))
	}
	if r.Failed() {
		p.log.Error("SIGHUP: the manifests were not reloaded; what ran before runs on")
	}
	return !r.Failed() && r.Kept == ""
}
