package redisdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"edda"
	"edda/hero"
)

// What the callers of this package tell apart.
var (
	// ErrNotFound: no such object.
	ErrNotFound = errors.New("not found")
	// ErrIllegal: the object is not in a status from which that step leads.
	ErrIllegal = errors.New("illegal step")
	// ErrExists: the id is another object's already.
	ErrExists = errors.New("exists already")
	// ErrDenied: the actor has not the right.
	ErrDenied = errors.New("permission denied")
	// ErrEmpty: nothing came into the queue in time.
	ErrEmpty = errors.New("queue is empty")
)

// unreadable are the hashes that a list could not read, each with a *hero.FieldError.
type unreadable []error

func (u unreadable) Error() string   { return errors.Join(u...).Error() }
func (u unreadable) Unwrap() []error { return u }

// Unreadable splits what a list, or the reading of one object, returned: the hashes that
// cannot be read, and what else was in the way.
func Unreadable(err error) ([]*hero.FieldError, error) {
	all := unreadable{err}
	errors.As(err, &all)
	var out []*hero.FieldError
	for _, e := range all {
		var field *hero.FieldError
		if e != nil && !errors.As(e, &field) {
			return nil, err
		}
		if field != nil {
			out = append(out, field)
		}
	}
	return out, nil
}

// StorageError is what Redis refused, or that it could not be reached, and what
// to do about it. Nearly all of them are edda.Temporary.
type StorageError struct {
	Op      string // what was attempted
	Context uint32 // in which database
	Advice  string
	Class   error // edda.Temporary or edda.Permanent
	Err     error // what Redis, or the network, said
}

func (e *StorageError) Error() string {
	where := ""
	if e.Context != 0 {
		where = fmt.Sprintf(" in context %d", e.Context)
	}
	if e.Err == nil {
		return fmt.Sprintf("%s%s: %s", e.Op, where, e.Advice)
	}
	return fmt.Sprintf("%s%s: redis: %v: %s", e.Op, where, e.Err, e.Advice)
}

func (e *StorageError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Err}
}

// outOfRange is what Redis says of a database that it does not have.
const outOfRange = "ERR DB index is out of range"

const lacksRight = "the Redis user lacks a right: see Redis permissions in docs/HERO.md"

// noCluster: a context is a database, of which a cluster has one, and one step of a job
// touches keys of several slots.
const noCluster = "this is a Redis Cluster, which does not serve: name a Redis that is none; for high availability let Sentinels watch it, redis-sentinel://host:port,…/master"

// refusals lists what Redis says and what to do, by how the answer begins.
func refusals() []struct{ says, advice string } {
	return []struct{ says, advice string }{
		{outOfRange, "a context is the Redis database of its number: set `databases N` in redis.conf, with N above the largest context, and restart Redis"},
		{"NOAUTH", "give the user and the password in the Redis URL"},
		{"WRONGPASS", "give the right user and password in the Redis URL"},
		{"failed to authenticate", "give the right user and password in the Redis URL"},
		{"NOPERM", lacksRight},
		{"ERR The user executing the script", lacksRight},
		{"LOADING", "Redis reads its data from disk and answers when it has done so"},
		{"READONLY", "this Redis is a replica, which nothing can be written to: give the address of the primary, or the URL of its Sentinels"},
		{"OOM", "Redis has no memory left: raise its maxmemory, or delete what is not needed"},
		{"MISCONF", "Redis cannot save to its disk: see its log"},
		{"MASTERDOWN", "the replica has lost its primary: give the address of the primary"},
		{"NOREPLICAS", "Redis has too few replicas to take writes: see min-replicas-to-write"},
		{"MOVED", noCluster}, {"CROSSSLOT", noCluster}, {"CLUSTERDOWN", noCluster}, {"ERR SELECT is not allowed in cluster mode", noCluster},
		{"BUSY", "another program's script keeps Redis busy"},
		{"ERR max number of clients", "Redis has too many clients: raise its maxclients"},
		{"ERR unknown command", "Redis 6.2 or newer is needed"},
	}
}

// wrongType is what Redis says of a key that holds something else.
const wrongType = "WRONGTYPE"

// Explain says what an answer that a raw Client gave means and what to do about
// it, in its class, as every error of this package does; nil stays nil.
func (d *DB) Explain(op string, in uint32, err error) error { return d.refused(op, in, err) }

// refused puts what Redis said in its class.
func (d *DB) refused(op string, in uint32, err error) error {
	var done *StorageError
	var field *hero.FieldError
	switch {
	case err == nil, errors.As(err, &done), errors.Is(err, ErrNotFound), errors.Is(err, ErrIllegal), errors.Is(err, ErrExists), errors.Is(err, ErrDenied), errors.Is(err, ErrEmpty):
		return err
	case errors.As(err, &field):
		return edda.Classify(edda.Permanent, "%s: %w", op, err)
	case errors.Is(err, errBusy):
		return &StorageError{Op: op, Context: in, Class: edda.Temporary, Advice: err.Error()}
	}
	e := &StorageError{Op: op, Context: in, Class: edda.Temporary, Err: err, Advice: d.advice(err)}
	if strings.Contains(err.Error(), wrongType) {
		e.Class, e.Advice = edda.Permanent, "another program keeps something else under that key: it is left as it is"
	}
	return e
}

func (d *DB) advice(err error) string {
	text := err.Error()
	for _, r := range refusals() {
		if strings.HasPrefix(text, r.says) || strings.Contains(text, ": "+r.says) {
			return r.advice
		}
	}
	var said redis.Error
	var network net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return "the caller did not wait for it"
	case strings.Contains(text, "all sentinels specified in configuration are unreachable"):
		return "check that the Sentinels run, and know a master of that name that is up: " + d.where
	case errors.As(err, &said):
		return "see Redis's documentation"
	case strings.Contains(text, "x509") || strings.Contains(text, "tls:"):
		return "check the CA and the client certificate for the Redis at " + d.where
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "the Redis at " + d.where + " is slow or hangs"
	}
	if d.options.TLSConfig != nil {
		return "check that Redis runs at " + d.where + ", speaks TLS there, and takes the client certificate, or needs none"
	}
	return "check that Redis runs at " + d.where + ", and without TLS"
}
