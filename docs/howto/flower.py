"""Eight clients learn one similarity of digits with Flower; each keeps its rows, and sends a matrix of rank 10."""

from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation
from sklearn.datasets import load_digits

from problems.similarity import LoretaSimilarity
from rmopt.interop.flower import ManifoldAveraging, from_arrays, to_arrays
from rmopt.manifolds import FixedRankEmbedded

MANIFOLD, STEPS = FixedRankEmbedded(64, 64, 10), 1000
X, y = load_digits(return_X_y=True)
client, server = ClientApp(), ServerApp()


@client.train()
def train(message, context):
    """Take the server's point, go on from it with rows of one's own, and send where they lead."""
    own = slice(int(context.node_config["partition-id"]), 1200, int(context.node_config["num-partitions"]))
    point, done = (
        from_arrays(MANIFOLD, message.content["arrays"]),
        message.content["config"]["server-round"] - 1,
    )
    model = LoretaSimilarity(10, random_state=0).start_at(point, n_iter=done * STEPS)
    model.partial_fit(X[own] / 16, y[own], max_iter=STEPS)
    number = MetricRecord({"num-examples": len(y[own])})
    return Message(RecordDict({"arrays": to_arrays(model.model_.point), "metrics": number}), reply_to=message)


@server.main()
def main(grid, context):
    """Average on the manifold, and say how good the mean is."""
    strategy = ManifoldAveraging(MANIFOLD, outer_step=2.0, fraction_evaluate=0.0)
    found = strategy.start(grid, to_arrays(MANIFOLD.identity()), num_rounds=10)
    model = LoretaSimilarity(10).start_at(from_arrays(MANIFOLD, found.arrays))
    print(f"mAP of the model of all: {model.score(X[1200:] / 16, y[1200:]):.3f}")


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=8)
