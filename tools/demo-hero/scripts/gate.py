while not os.path.exists(os.path.join(WORK, "open")):
    time.sleep(0.05)
put("gate" + JOB, int(os.environ["WEIGHT"]))
done(os.environ["WEIGHT"])
