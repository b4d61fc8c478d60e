"""A language model of characters over lines of different lengths: one network for each length.

The text is that of Python's own documentation, which ships with Python.

    python examples/bucketing.py
"""

import pydoc_data.topics

import rsnet as mx

BUCKETS = (20, 40, 60, 80)


def sentences(topics):
    """The lines of some topics as lists of character numbers, and the number of characters."""
    names = sorted(pydoc_data.topics.topics)[:topics]
    lines = "\n".join(pydoc_data.topics.topics[name] for name in names).splitlines()
    lines = [list(line.strip()) for line in lines if 5 < len(line.strip()) < max(BUCKETS)]
    numbers, vocabulary = mx.rnn.encode_sentences(lines, start_label=1, invalid_label=0)
    return numbers, len(vocabulary) + 1


def generator(characters, hidden):
    """The function that makes the network of a length; all share their parameters."""
    cell = mx.rnn.SequentialRNNCell()
    cell.add(mx.rnn.GRUCell(hidden, prefix="gru_"))

    def network(length):
        cell.reset()
        embedded = mx.sym.Embedding(
            mx.sym.Variable("data"), input_dim=characters, output_dim=hidden, name="embedding"
        )
        outputs, _ = cell.unroll(length, embedded, merge_outputs=True)
        scores = mx.sym.FullyConnected(
            mx.sym.Reshape(outputs, shape=(-1, hidden)), num_hidden=characters, name="scores"
        )
        label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
        loss = mx.sym.SoftmaxOutput(
            scores, label, name="softmax", use_ignore=True, ignore_label=0, normalization="valid"
        )
        return loss, ("data",), ("softmax_label",)

    return network


def train(topics=8, hidden=96, num_epoch=6, batch_size=32):
    """Trains; returns the number of characters and the perplexity of the last epoch."""
    numbers, characters = sentences(topics)
    batches = mx.rnn.BucketSentenceIter(numbers, batch_size, buckets=list(BUCKETS), invalid_label=0)
    metric = mx.metric.Perplexity(ignore_label=0)
    module = mx.mod.BucketingModule(generator(characters, hidden), batches.default_bucket_key)
    module.fit(
        batches,
        num_epoch=num_epoch,
        eval_metric=metric,
        optimizer="adam",
        optimizer_params={"learning_rate": 0.01, "rescale_grad": 1.0},
        initializer=mx.init.Xavier(),
    )
    return characters, metric.get()[1]


if __name__ == "__main__":
    choices, perplexity = train()
    print(f"the model chooses among {perplexity:.1f} of {choices} characters")
