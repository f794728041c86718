time.sleep(0.2)
done({"language": os.environ["LANGUAGE"], "tone": os.environ["TONE"]})
