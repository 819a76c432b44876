"""The building-block algebra: WindFlow's blocks as frozen data, and its rules as small functions.

`derive` turns a graph into a term; `count`, `notation`, `tree` and `nodes_of` read one. The term says
what runs beside what, what is fused and where rows are shuffled; engines lower it, each in its way.
"""

from penstock.blocks.counting import Counts as Counts
from penstock.blocks.counting import count as count
from penstock.blocks.derivation import Applied as Applied
from penstock.blocks.derivation import Derivation as Derivation
from penstock.blocks.derivation import Feedback as Feedback
from penstock.blocks.derivation import Input as Input
from penstock.blocks.derivation import Node as Node
from penstock.blocks.derive import derive as derive
from penstock.blocks.functions import Composition as Composition
from penstock.blocks.functions import Distribution as Distribution
from penstock.blocks.functions import Function as Function
from penstock.blocks.functions import Kind as Kind
from penstock.blocks.functions import Operator as Operator
from penstock.blocks.functions import Splitting as Splitting
from penstock.blocks.grammar import is_matryoshka as is_matryoshka
from penstock.blocks.grammar import is_multipipe as is_multipipe
from penstock.blocks.matryoshka import Matryoshka as Matryoshka
from penstock.blocks.matryoshka import last_op as last_op
from penstock.blocks.matryoshka import out_card as out_card
from penstock.blocks.matryoshka import put_seed as put_seed
from penstock.blocks.multipipe import Merged as Merged
from penstock.blocks.multipipe import Split as Split
from penstock.blocks.multipipe import merge as merge
from penstock.blocks.multipipe import merge_independent as merge_independent
from penstock.blocks.multipipe import split as split
from penstock.blocks.operations import add as add
from penstock.blocks.operations import chain as chain
from penstock.blocks.operations import create as create
from penstock.blocks.placing import Placed as Placed
from penstock.blocks.placing import nodes_of as nodes_of
from penstock.blocks.printing import notation as notation
from penstock.blocks.printing import tree as tree
from penstock.blocks.rightmost import combine_with_last as combine_with_last
from penstock.blocks.rightmost import no_sink as no_sink
from penstock.blocks.rightmost import pipe_with_last as pipe_with_last
from penstock.blocks.rightmost import rmost as rmost
from penstock.blocks.terms import A2A as A2A
from penstock.blocks.terms import PBB as PBB
from penstock.blocks.terms import SBB as SBB
from penstock.blocks.terms import Comb as Comb
from penstock.blocks.terms import Container as Container
from penstock.blocks.terms import FanOut as FanOut
from penstock.blocks.terms import Pipe as Pipe
from penstock.blocks.terms import Seq as Seq
from penstock.blocks.terms import Term as Term
