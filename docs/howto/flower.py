"""Eight clients learn one similarity of digits with Flower; each keeps its rows, and sends a matrix of rank 10."""

import logging

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits

from problems.similarity import LoretaSimilarity
from rmopt.core import LowRankPoint
from rmopt.manifolds import FixedRankEmbedded, projected_mean

MANIFOLD, STEPS = FixedRankEmbedded(64, 64, 10), 1000
X, y = load_digits(return_X_y=True)
client, server = ClientApp(), ServerApp()


def to_arrays(point):
    """Return the factors of a matrix as a record that Flower sends."""
    return ArrayRecord({name: Array(np.ascontiguousarray(getattr(point, name))) for name in "USV"})


def from_arrays(arrays):
    """Return the matrix that a record holds, or refuse what is none of the manifold."""
    point = LowRankPoint(*(arrays[name].numpy() for name in "USV"))
    if (flaw := MANIFOLD.check_point(point)) is not None:
        raise ValueError(flaw)
    return point


class ManifoldAveraging(FedAvg):
    """FedAvg, but for the mean: the matrix of the manifold that is nearest to the mean of the clients' matrices.

    With an outer step above 1 it goes beyond that, from the last matrix on: where each client moves in a direction of
    its own, that wins back what the mean takes away.
    """

    def __init__(self, outer_step=1.0, **options):
        super().__init__(**options)
        self.outer_step = outer_step

    def configure_train(self, server_round, arrays, config, grid):
        """Send the matrix to clients."""
        self.sent = from_arrays(arrays)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        """Return the mean of the clients' matrices, by their numbers of examples, and that of their metrics."""
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        points, weights, used = [], [], []
        # In the order of the clients, so that bits do not depend on who is first.
        for reply in sorted(valid, key=lambda message: message.metadata.src_node_id):
            [arrays] = reply.content.array_records.values()
            [metrics] = reply.content.metric_records.values()
            try:
                points.append(from_arrays(arrays))
            except (KeyError, ValueError) as flaw:
                logging.getLogger("flwr").warning("client %s: %s", reply.metadata.src_node_id, flaw)
            else:
                weights.append(metrics[self.weighted_by_key])
                used.append(reply.content)
        if not points:
            return None, None
        mean = projected_mean(MANIFOLD, points, np.array(weights) / sum(weights))
        if self.outer_step != 1.0:
            mean = projected_mean(MANIFOLD, [self.sent, mean], [1.0 - self.outer_step, self.outer_step])
        return to_arrays(mean), self.train_metrics_aggr_fn(used, self.weighted_by_key)


@client.train()
def train(message, context):
    """Take the server's matrix, go on from it with rows of one's own, and send where they lead."""
    own = slice(int(context.node_config["partition-id"]), 1200, int(context.node_config["num-partitions"]))
    point, done = from_arrays(message.content["arrays"]), message.content["config"]["server-round"] - 1
    model = LoretaSimilarity(10, random_state=0).start_at(point, n_iter=done * STEPS)
    model.partial_fit(X[own] / 16, y[own], max_iter=STEPS)
    number = MetricRecord({"num-examples": len(y[own])})
    return Message(RecordDict({"arrays": to_arrays(model.model_.point), "metrics": number}), reply_to=message)


@server.main()
def main(grid, context):
    """Average on the manifold, and say how good the mean is."""
    strategy = ManifoldAveraging(outer_step=2.0, fraction_evaluate=0.0)
    found = strategy.start(grid, to_arrays(MANIFOLD.identity()), num_rounds=10)
    model = LoretaSimilarity(10).start_at(from_arrays(found.arrays))
    print(f"mAP of the model of all: {model.score(X[1200:] / 16, y[1200:]):.3f}")


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=8)
