package realservers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certified makes a CA and two certificates of it, the server's and a client's,
// as files in the server's folder. They are good for an hour.
func (s *Server) certified() error {
	ca, caKey, err := certificate(1, "Edda's tests", nil, nil)
	if err != nil {
		return err
	}
	s.CA = filepath.Join(s.dir, "ca.crt")
	errs := []error{writePEM(s.CA, "CERTIFICATE", ca.Raw)}
	for i, name := range []string{"server", "client"} {
		cert, key, err := certificate(int64(i+2), name, ca, caKey)
		if err != nil {
			return err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		s.Cert, s.Key = filepath.Join(s.dir, name+".crt"), filepath.Join(s.dir, name+".key") // the client's, in the end
		errs = append(errs, err, writePEM(s.Cert, "CERTIFICATE", cert.Raw), writePEM(s.Key, "PRIVATE KEY", der))
	}
	return errors.Join(errs...)
}

// certificate makes one, signed by the parent or by itself.
func certificate(serial int64, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true,
	}
	if parent == nil {
		t.IsCA, t.KeyUsage, parent, parentKey = true, x509.KeyUsageCertSign, t, key
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
