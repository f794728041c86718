package sqleffect

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"

	"edda"
	"edda/effects/dial"
)

// connect takes a connection. Whatever a server says while it is made, nothing
// was done and it may say otherwise later.
func connect(ctx context.Context, p *pool) (*sql.Conn, error) {
	conn, err := p.Conn(ctx)
	if err == nil || ctx.Err() != nil {
		return conn, err
	}
	if v, answered := p.source.database.judge(err); v.absent {
		return nil, errAbsent
	} else if answered {
		v.status = statusLater
		return nil, &aDefinite{v}
	}
	return nil, err
}

var errAbsent = errors.New("the database's file cannot be opened")

// unreached is the error of a call that did not get as far as a commit.
func unreached(err error) error {
	if errors.Is(err, dial.ErrForbidden) {
		return notSent(edda.Permanent, fmt.Errorf("the database's address: %w; effects.allow can list its host, its socket or its file", dial.ErrForbidden))
	}
	return notSent(edda.Temporary, errors.New(cause(err)))
}

// cause says why a connection failed without the parts of a DSN that drivers
// put into their errors.
func cause(err error) string {
	if errors.Is(err, errAbsent) {
		return err.Error()
	}
	var op *net.OpError
	var dns *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns):
		return "the database's host: " + dns.Err
	case errors.As(err, &certificate):
		return "the database's certificate is not trusted"
	case errors.As(err, &op):
		return "the connection to the database: " + op.Err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "the connection to the database: no answer in time"
	}
	return "the connection to the database was lost"
}
