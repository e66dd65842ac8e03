"""TensorFlow workers add up their ranks with the collective strategy, which reads TF_CONFIG."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id


@tf.function
def total() -> tf.Tensor:
    def add() -> tf.Tensor:
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(rank + 1.0))

    return strategy.run(add)


print(f"sum {float(total()):.0f} of {strategy.num_replicas_in_sync}")
