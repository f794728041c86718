time.sleep(0.2)
if runs() < 3:
    note("failed")
    sys.exit("the sea is rough, run %d" % runs())
done("landed in run %d" % runs())
