package node

import (
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"edda/hero"
	"edda/hero/runner"
	"edda/hero/script"
	"edda/hero/supervisor"
	"edda/internal/httpserver"
	"edda/internal/lifecycle"
)

// works holds the parts of the role runner: a runner of scripts from queues and a topic, and
// the supervisor's API if there is a secret for it.
type works struct {
	runner     *runner.Runner
	supervisor *supervisor.Server
	http       *httpserver.Server // of the supervisor; nil if only Mycelium reaches it
	scripts    *script.Host
}

// The bounds of the supervisor's HTTP server. A job.run lasts as long as its job.
const (
	supervisorReads   = 10 * time.Second // for the request
	supervisorIdle    = 2 * time.Minute
	supervisorHeaders = 16 << 10
	// supervisorConnections exceeds the calls that wait for jobs, each on its connection. Few
	// of the callers are anonymous.
	supervisorConnections, supervisorAnonymous = 6144, 512
	// jobsMayEnd bounds the running jobs during a stop, within the stage's time.
	jobsMayEnd = 5 * time.Second
)

func (p *process) newWorks() (*works, error) {
	w := &works{}
	var err error
	if w.scripts, err = script.New(p.settings.scripts(p.log.Named("script"))); err != nil {
		return nil, &ConfigError{err}
	}
	o := runner.Options{
		Contexts: p.settings.Hero.Runner.Contexts, Concurrency: p.settings.Hero.Runner.Concurrency, Topic: p.settings.Hero.Runner.Topic,
		Drain: jobsMayEnd, Metrics: p.metrics, Log: p.log.Named("runner"),
	}
	secret := p.settings.Hero.Supervisor.Secret
	if p.hero.mesh != nil && secret != "" { // otherwise every node of Mycelium could run scripts here
		o.Hub, o.Secrets = p.hero.mesh.hub, []string{secret}
	}
	if w.runner, err = runner.New(p.settings.Hero.Runner.ID, p.redis, w.scripts, o); err != nil {
		return nil, &ConfigError{err}
	}
	if secret == "" {
		return w, nil
	}
	return w, p.supervise(w, secret)
}

// scripts returns the settings of the host of scripts.
func (s Settings) scripts(log *zap.Logger) script.Options {
	r := s.Hero.Runner
	o := script.Options{
		Dir: filepath.Join(s.Data, "jobs"), Secrets: r.Secrets, Log: log,
		Limits: script.Limits{Timeout: r.Timeout, Output: int(r.Output), Memory: r.Memory, CPU: r.CPU,
			LogSize: r.LogSize, LogRotations: r.LogRotations, LogFiles: r.LogFiles, LogAge: r.LogAge},
	}
	if len(r.Interpreters) > 0 {
		o.Interpreters = r.Interpreters
	}
	if r.Sandbox {
		o.Sandbox = &script.Sandbox{}
	}
	return o
}

// supervise serves the supervisor's API over Mycelium, if configured, and over HTTP, if an
// address is set.
func (p *process) supervise(w *works, secret string) error {
	queues := map[string]string{}
	for _, t := range w.scripts.Types() {
		queues[t] = hero.ScriptType(t).Queue()
	}
	var err error
	w.supervisor, err = supervisor.New(p.redis, supervisor.Options{
		Admins: []string{secret}, Runners: queues, Contexts: p.settings.Hero.Runner.Contexts, Log: p.log.Named("supervisor"),
	})
	if err != nil {
		return &ConfigError{err}
	}
	if p.hero.mesh != nil {
		if err := p.hero.mesh.hub.Serve(hero.SupervisorTopic, w.supervisor.HandleMessage); err != nil {
			return err
		}
	}
	addr := p.settings.Hero.Supervisor.Addr
	if addr == "" {
		return nil
	}
	// A stop cuts calls that wait for a job. The job goes on, and the caller asks again.
	w.http = httpserver.New(addr, w.supervisor, httpserver.Options{
		Name: "supervisor", Metrics: p.metrics, Connections: supervisorConnections, Anonymous: supervisorAnonymous, Headers: supervisorHeaders, ReadHeaders: supervisorReads, Idle: supervisorIdle,
		Log: zap.NewStdLog(p.log.Named("supervisor")),
	})
	if err := w.http.Listen(); err != nil {
		return fmt.Errorf("supervisor: %w; choose another hero.supervisor.addr", err)
	}
	return nil
}

func (w *works) parts() []lifecycle.Component {
	parts := []lifecycle.Component{
		{Name: "logs of jobs", Stage: lifecycle.Intake, Run: w.scripts.KeepLogs},
		{Name: "runner", Stage: lifecycle.Intake, Run: w.runner.Run},
	}
	if w.supervisor != nil {
		parts = append(parts, lifecycle.Component{Name: "supervisor", Stage: lifecycle.Intake, Run: w.supervisor.Run})
	}
	if w.http != nil {
		parts = append(parts, lifecycle.Component{Name: "supervisor http", Stage: lifecycle.Intake, Run: w.http.Run})
	}
	return parts
}
