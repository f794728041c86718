package node

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"edda"
	"edda/manifests"
	"edda/node/versions"
	"edda/retention"
	"edda/saga"
	"edda/store"
)

// retentionConfig says how long rows are kept; 0 means for ever. Claims have
// effects.retention, and a saga may have retention: in its manifest.
type retentionConfig struct {
	Instances   time.Duration `koanf:"instances"` // finished instances
	History     time.Duration `koanf:"history"`
	DeadLetters time.Duration `koanf:"dead_letters"`
	Audit       time.Duration `koanf:"audit"`
	Manifests   time.Duration `koanf:"manifests"` // unused texts
}

const retentionDay = 24 * time.Hour

// retentionDefaults keeps rows about as long as people ask about them.
func retentionDefaults() retentionConfig {
	return retentionConfig{
		Instances: 30 * retentionDay, History: 30 * retentionDay, DeadLetters: 90 * retentionDay, Audit: 365 * retentionDay,
		Manifests: 90 * retentionDay,
	}
}

func (c retentionConfig) validate() error {
	for _, s := range []struct {
		name string
		d    time.Duration
	}{{"instances", c.Instances}, {"history", c.History}, {"dead_letters", c.DeadLetters}, {"audit", c.Audit}, {"manifests", c.Manifests}} {
		if s.d != 0 && s.d < minRetention {
			return configf("retention.%s %s: want %s or more, or 0 to keep it for ever", s.name, s.d, minRetention)
		}
	}
	return nil
}

// retentionOf returns the retention of a store: the configuration, and the retention: in the
// newest stored text of each saga.
func (c Config) retentionOf(db *store.DB) (retention.Settings, error) {
	kept, err := db.Manifests()
	if err != nil {
		return retention.Settings{}, fmt.Errorf("read the kept manifests: %w", err)
	}
	own := ownRetention(kept)
	return retention.Settings{
		History: c.Retention.History, DeadLetters: c.Retention.DeadLetters, Audit: c.Retention.Audit, Claims: c.Effects.Retention,
		Manifests: c.Retention.Manifests,
		Instances: func(saga string, status edda.Status) time.Duration {
			if d, ok := own[saga].of(status); ok {
				return max(d, 1) // 0s in a manifest means at once, not for ever
			}
			return c.Retention.Instances
		},
	}, nil
}

// retentionSettings returns the retention with the running sagas.
func (p *process) retentionSettings() (retention.Settings, error) {
	s, err := p.settings.retentionOf(p.db)
	s.Loaded = loadedIn(usedPrograms{p}.Set())
	return s, err
}

// loadedIn returns a test for the texts that instances use.
func loadedIn(set *saga.Set) func(edda.Manifest) bool {
	loaded := map[versions.Text]bool{}
	if set != nil {
		for _, p := range set.Programs() {
			loaded[versions.TextOf(p)] = true
		}
	}
	return func(m edda.Manifest) bool {
		return loaded[versions.Text{Saga: m.Saga, Version: m.Version, Hash: m.Hash}]
	}
}

// sagaRetention is the retention: of one manifest. A nil field is not set.
type sagaRetention struct{ done, failed *manifests.Duration }

func (s sagaRetention) of(status edda.Status) (time.Duration, bool) {
	d := s.failed // also for undone instances
	if status == edda.StatusDone {
		d = s.done
	}
	if d == nil {
		return 0, false
	}
	return d.D, true
}

func ownRetention(kept []edda.Manifest) map[string]sagaRetention {
	kept = slices.SortedFunc(slices.Values(kept), func(a, b edda.Manifest) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), a.Loaded.Compare(b.Loaded))
	})
	own := map[string]sagaRetention{}
	for _, k := range kept {
		file, problems := manifests.Parse(k.Saga, []byte(k.Text))
		if problems.Failed() {
			continue // a text of an older Edda version: the configuration applies
		}
		for _, s := range file.Sagas {
			own[k.Saga] = sagaRetention{s.Done, s.Failed}
		}
	}
	return own
}
