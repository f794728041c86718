package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edda"
	"edda/keyset"
	"edda/node/operator"
	"edda/node/versions"
	"edda/store"
)

// addrFile lies beside a store and names its holder.
const addrFile = "edda.addr"

// Holder is the process that holds a store.
type Holder struct {
	Addr  string `json:"addr"`
	Store string `json:"store"` // id of the store
}

// HolderOf returns the last process that held the store in a folder, as it said itself.
func HolderOf(folder string) (Holder, error) {
	var h Holder
	text, err := os.ReadFile(filepath.Join(folder, addrFile))
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(text, &h)
}

// StoreOptions returns how a command opens a store that no process holds. It keeps the sent
// messages, because the next start may need them.
func (c Config) StoreOptions() (store.Options, error) {
	sealing, err := c.sealing()
	return store.Options{Seal: sealing, KeepSent: func() time.Time { return time.Time{} }}, err
}

// sealing returns the encryption of the store; nil without a keyset.
func (c Config) sealing() (store.AEAD, error) {
	if c.Encryption.Keyset == "" {
		return nil, nil
	}
	return keyset.Open(c.Encryption.Keyset)
}

// open creates the folder and opens the store. Only one process can hold a store.
func (p *process) open() error {
	if err := os.MkdirAll(p.settings.Data, 0o750); err != nil {
		return fmt.Errorf("data folder: %w; choose another --data", err)
	}
	if p.stay == nil {
		if err := ownStore(p.settings.storeDir()); err != nil {
			return err
		}
	}
	sealing, err := p.settings.sealing()
	if err != nil {
		return err
	}
	db, err := store.Open(p.settings.storeDir(), store.Options{Seal: sealing, KeepSent: p.keepSent(), MaxDeadBytes: p.settings.Dead.MaxBytes, Log: p.log.Named("store"), Observe: observeCommits(p.metrics), Ship: p.stay.ship()})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	if err := servesAlone(db, p.settings.Tenants); err != nil {
		return errors.Join(err, db.Close())
	}
	p.db = db
	p.server.Read(db)
	p.texts = versions.New(db, p.settings.Dev, p.log)
	p.Quarantine = operator.NewQuarantine(db, operator.Options{Publisher: p.publisher, MaxBytes: p.settings.Dead.MaxBytes, Log: p.log, Metrics: p.metrics})
	return p.findRestored()
}

// servesAlone refuses other tenants on a store restored from one tenant's backup, because
// their instances would start a second time without their history.
func servesAlone(db *store.DB, tenants []string) error {
	of := db.Tenant()
	if of == "" || slices.Equal(tenants, []string{of}) {
		return nil
	}
	return edda.Classify(edda.Permanent, "this store was restored from a backup of the tenant %s and has nothing of others: run it with tenants: [%s] (--tenants %s), or name another --data", of, of, of)
}

// writeHolder writes beside the store where this process listens.
func (p *process) writeHolder() error {
	text, err := json.Marshal(Holder{Addr: p.server.Addr(), Store: p.db.ID()})
	if err == nil {
		err = os.WriteFile(p.addrFile(), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("say where this process listens: %w", err)
	}
	return nil
}

func (p *process) addrFile() string {
	return filepath.Join(p.settings.Data, p.settings.storeFolder(), addrFile)
}

func (p *process) closeStore() error {
	err := os.Remove(p.addrFile())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.db.Close())
}

// sizeCollector exports the size of the store's file.
type sizeCollector struct{ db *store.DB }

func sizeDesc() *prometheus.Desc {
	return prometheus.NewDesc("edda_store_bytes", "Size of the store's file: in use, and free for commits to use again.", []string{"state"}, nil)
}

func (c *sizeCollector) Describe(ch chan<- *prometheus.Desc) { ch <- sizeDesc() }

func (c *sizeCollector) Collect(ch chan<- prometheus.Metric) {
	s, err := c.db.Size()
	if err != nil {
		return // the store is closing
	}
	ch <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(s.Bytes-s.Free), "used")
	ch <- prometheus.MustNewConstMetric(sizeDesc(), prometheus.GaugeValue, float64(s.Free), "free")
}
