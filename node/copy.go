package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"edda"
	"edda/cluster"
	"edda/internal/files"
	"edda/server"
	"edda/store"
)

const (
	// copyDial bounds the connection to another node, and its TLS handshake: a frozen node answers neither.
	copyDial = 5 * time.Second
	// copyHeaders bounds the wait for the head of another node's answer.
	copyHeaders = 20 * time.Second
	// copySilence is how long another node may send nothing in the middle of a copy.
	copySilence = 30 * time.Second
	// maxRefusal bounds what is read of an answer that refuses.
	maxRefusal = 4 << 10
	// copying is the name of a copy until it is whole.
	copying = store.FileName + ".copying"
)

// copyStore puts a copy of the owner's store into the folder.
func (t *stay) copyStore(ctx context.Context) error {
	owner, at, err := t.ownerURL()
	if err != nil {
		return err
	}
	return t.copyFrom(ctx, owner, at)
}

// copyFrom copies the store of an owner who has that record. Meanwhile this node beats that it needs what follows, so
// that the log keeps it.
func (t *stay) copyFrom(ctx context.Context, owner string, at uint64) (err error) {
	t.say(func(b *cluster.Beat) { b.Needs = at })
	defer func() {
		if err != nil {
			t.say(func(b *cluster.Beat) { b.Needs = 0 })
		}
	}()
	if err := os.MkdirAll(t.dir(), 0o700); err != nil {
		return edda.Classify(edda.Permanent, "data folder: %w; choose another --data", err)
	}
	replaces, err := t.replaces()
	if err != nil {
		return err
	}
	backup := filepath.Join(t.dir(), copying)
	defer func() { _ = os.Remove(backup) }()
	t.log.Info("copying the store", zap.String("from", owner))
	started := time.Now()
	n, err := t.fetch(ctx, owner, backup)
	if err != nil {
		return fmt.Errorf("copy the store of %s: %w", owner, err)
	}
	r, err := store.RestoreReplica(ctx, backup, t.dir(), t.agreed.Store, replaces)
	if err == nil { // the next copy replaces this one for good
		err = membership{t.settings.Cluster.Name, t.agreed.Created, true, true}.write(t.dir())
	}
	if err != nil {
		return fmt.Errorf("copy the store of %s: %w", owner, err)
	}
	t.log.Info("the store is copied", zap.Int64("bytes", n), zap.Duration("took", time.Since(started)), zap.String("aside", r.Aside))
	return nil
}

// replaces says what becomes of the store that a copy replaces. A copy of this log is merely too old. One of the log
// before may have what was acknowledged and what the cluster has not.
func (t *stay) replaces() (store.Replace, error) {
	m, err := membershipOf(t.dir())
	switch {
	case err != nil:
		return store.ReplaceNone, err
	case m.of(t.agreed.Created):
		return store.ReplaceForGood, nil
	}
	return store.ReplaceAside, nil
}

// ownerURL is where the node answers that owns the store now, and the last record that it has said to have.
func (t *stay) ownerURL() (url string, at uint64, err error) {
	for _, m := range t.others() {
		if m.Beat.Owner && !m.Dead && m.Beat.URL != "" {
			return m.Beat.URL, m.Beat.LSN, nil
		}
	}
	t.mu.Lock()
	founder := t.agreed.Founder
	t.mu.Unlock()
	return "", 0, edda.Classify(edda.Temporary, "no node owns the store now; node %s has founded the cluster", founder)
}

// fetch gets a backup of another node's store into a file.
func (t *stay) fetch(ctx context.Context, from, to string) (n int64, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	client, err := t.settings.peers()
	if err != nil {
		return 0, err
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, from+"/admin/backup", nil)
	if err != nil {
		return 0, edda.Classify(edda.Permanent, "%w", err)
	}
	if !t.settings.share.Whole() {
		req.Header.Set(server.ShardHeader, strconv.Itoa(t.settings.share.Index))
	}
	req.Header.Set("X-Edda-By", "node "+t.node)
	req.Header.Set("X-Edda-Why", "a copy for its place in the cluster")
	if err := t.settings.authorize(req); err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, refusal(resp)
	}
	of, err := strconv.ParseInt(resp.Header.Get(server.BackupBytes), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("what answers there sends no backup")
	}
	f, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	silence := time.AfterFunc(copySilence, func() { stop(fmt.Errorf("nothing came for %s", copySilence)) })
	defer silence.Stop()
	p := &fetched{t: t, silence: silence, of: of, told: time.Now()}
	n, err = io.Copy(io.MultiWriter(f, p), resp.Body)
	if err == nil && n != of {
		err = fmt.Errorf("it broke off after %d of %d bytes", n, of)
	}
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return n, errors.Join(err, f.Close())
}

// fetched counts what has come, and tells it now and then.
type fetched struct {
	t       *stay
	silence *time.Timer
	n, of   int64
	told    time.Time
}

func (p *fetched) Write(b []byte) (int, error) {
	p.n += int64(len(b))
	p.silence.Reset(copySilence)
	if time.Since(p.told) > tellEvery {
		p.told = time.Now()
		p.t.log.Info("copying the store", zap.Int64("bytes", p.n), zap.Int64("of", p.of))
	}
	return len(b), nil
}

// refusal is an answer that is no backup. A wrong token stays wrong until somebody mends it, but then this node
// should go on by itself.
func refusal(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	hint := ""
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		hint = "; cluster.token_file names the token of an admin of all tenants"
	}
	return fmt.Errorf("it answers %s: %s%s", resp.Status, strings.TrimSpace(string(text)), hint)
}

// peers is the client for calls to other nodes.
func (c Config) peers() (*http.Client, error) {
	tls, err := ClientTLS(c.Cluster.Cert, c.Cluster.Key, c.Cluster.CA)
	if err != nil {
		return nil, configf("cluster: %w", err)
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: copyDial}).DialContext, TLSClientConfig: tls, TLSHandshakeTimeout: copyDial, ResponseHeaderTimeout: copyHeaders,
		ForceAttemptHTTP2: true,
	}}, nil
}

// authorize adds the token of this node. The file is read each time, because tokens are replaced while nodes run.
func (c Config) authorize(req *http.Request) error {
	if c.Cluster.TokenFile == "" {
		return nil
	}
	token, err := files.Read(c.Cluster.TokenFile, files.Most)
	if err != nil {
		return fmt.Errorf("cluster.token_file: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	return nil
}
